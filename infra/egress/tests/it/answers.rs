//! The client stays bounded, whatever a receiver does.

use signalbox_egress::{Egress, EgressError, Policy};

use crate::receiver::{Behaviour, Receiver};

fn egress() -> Egress {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Egress::new(Policy::allowing(&["127.0.0.1/32"]).unwrap()).unwrap()
}

async fn post(egress: &Egress, url: &str) -> Result<u16, EgressError> {
    egress.post(&url.parse().unwrap(), Default::default(), b"{}".to_vec()).await.map(|status| status.as_u16())
}

#[tokio::test]
async fn the_status_is_given_back_and_the_connection_used_again() {
    for (answer, status) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", 500),
    ] {
        let (egress, receiver) = (egress(), Receiver::start("127.0.0.1:0", Behaviour::Answer(answer)).await);
        for _ in 0..3 {
            assert_eq!(post(&egress, &receiver.url()).await.unwrap(), status);
        }
        assert_eq!((receiver.requests(), receiver.connections()), (3, 1));
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_like_another() {
    let elsewhere =
        Receiver::start("127.0.0.1:0", Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
            .await;
    let answer = format!("HTTP/1.1 307 Away\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", elsewhere.url());
    let receiver = Receiver::start("127.0.0.1:0", Behaviour::Answer(answer.leak())).await;
    assert_eq!(post(&egress(), &receiver.url()).await.unwrap(), 307);
    assert_eq!((receiver.requests(), elsewhere.requests()), (1, 0));
}

#[tokio::test]
async fn of_an_endless_body_next_to_nothing_is_read() {
    let receiver = Receiver::start("127.0.0.1:0", Behaviour::Flood).await;
    assert_eq!(post(&egress(), &receiver.url()).await.unwrap(), 200);
    // The sockets' buffers held this much; the rest of the gigabyte was never sent.
    assert!(receiver.flooded() < 64 << 20, "{} bytes were sent", receiver.flooded());
}

#[tokio::test]
async fn a_download_is_read_only_as_far_as_needed() {
    use futures::{StreamExt, TryStreamExt};
    let get = async |behaviour| {
        let receiver = Receiver::start("127.0.0.1:0", behaviour).await;
        let answer = egress().get(&receiver.url().parse().unwrap()).await.unwrap();
        (receiver, answer)
    };
    let (_receiver, answer) = get(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).await;
    assert_eq!((answer.status().as_u16(), answer.length()), (200, Some(2)));
    assert_eq!(answer.into_stream().try_collect::<Vec<_>>().await.unwrap().concat(), b"ok");
    let (receiver, answer) = get(Behaviour::Flood).await;
    let mut body = std::pin::pin!(answer.into_stream());
    body.next().await.unwrap().unwrap();
    assert!(receiver.flooded() < 64 << 20, "{} bytes were sent", receiver.flooded());
    let away = "HTTP/1.1 302 Away\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(get(Behaviour::Answer(away)).await.1.status().as_u16(), 302);
}

#[tokio::test]
async fn a_reset_is_an_error_and_the_request_is_not_repeated() {
    let receiver = Receiver::start("127.0.0.1:0", Behaviour::Reset).await;
    let error = post(&egress(), &receiver.url()).await.unwrap_err();
    assert!(matches!(error, EgressError::Transport(_)), "{error}");
    assert_eq!(receiver.requests(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_an_error() {
    let receiver = Receiver::start("127.0.0.1:0", Behaviour::Hang).await;
    let url = receiver.url();
    drop(receiver);
    // The listener is closed when its task has been dropped.
    tokio::task::yield_now().await;
    let error = post(&egress(), &url).await.unwrap_err();
    assert!(error.to_string().starts_with("Transport error: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_is_given_up_after_ten_seconds() {
    let receiver = Receiver::start("127.0.0.1:0", Behaviour::Hang).await;
    let begun = tokio::time::Instant::now();
    let error = post(&egress(), &receiver.url()).await.unwrap_err();
    assert!(matches!(error, EgressError::Timeout), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_never_connected_to() {
    let receiver = Receiver::start("127.0.0.1:0", Behaviour::Hang).await;
    let egress = Egress::new(Policy::default()).unwrap();
    let port = receiver.address.port();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "[fd00:ec2::254]",
    ] {
        let error = post(&egress, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(matches!(error, EgressError::Denied { .. }), "{host}: {error}");
        let error = egress.get(&format!("http://{host}:{port}/").parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, EgressError::Denied { .. }), "{host}: {error}");
    }
    assert_eq!(receiver.connections(), 0);
}
