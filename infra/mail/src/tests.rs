use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

use super::*;

const MAIL: Mail<'_> = Mail {
    id: "0199",
    to: "ops@example.org",
    subject: "CRITICAL firing: Kessel zu heiß",
    text: "since 12:00\n.\nBcc: other@example.org\n",
};

fn settings(port: u16) -> Settings {
    Settings {
        server: "127.0.0.1".to_owned(),
        port,
        security: MailSecurity::None,
        username: String::new(),
        password: signalbox_config::Secret::new(String::new()),
        sender: "Signalbox <alarms@plant.example>".to_owned(),
        ca_file: Default::default(),
    }
}

/// A server that gives `answer` to the receiver, and what it was sent.
async fn send(answer: &'static str) -> (Result<u16, MailError>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mailer = Mailer::new(&settings(listener.local_addr().unwrap().port())).unwrap().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        write.write_all(b"220 test\r\n").await.unwrap();
        let (mut lines, mut received, mut is_data) = (BufReader::new(read).lines(), String::new(), false);
        while let Ok(Some(line)) = lines.next_line().await {
            received += &format!("{line}\n");
            let reply = match line.split(' ').next().unwrap() {
                "." if is_data => "250 queued",
                _ if is_data => continue,
                "RCPT" => answer,
                "DATA" => "354 go on",
                _ => "250 ok",
            };
            is_data = line == "DATA" || (is_data && line != ".");
            write.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
        }
        received
    });
    let sent = mailer.send(MAIL).await;
    drop(mailer);
    (sent, server.await.unwrap())
}

#[tokio::test]
async fn a_mail_has_one_receiver_and_an_id_that_stays() {
    let (sent, received) = send("250 ok").await;
    assert_eq!(sent.unwrap(), 250);
    for line in [
        "MAIL FROM:<alarms@plant.example>",
        "RCPT TO:<ops@example.org>",
        "Message-ID: <0199@plant.example>",
        "Auto-Submitted: auto-generated",
    ] {
        assert!(received.contains(line), "{line}: {received}");
    }
    assert!(!received.contains("heiß"), "a subject in another script is encoded: {received}");
    assert_eq!(received.matches("RCPT").count(), 1);
}

#[tokio::test]
async fn a_receiver_that_does_not_exist_is_refused_for_good() {
    let (sent, _) = send("550 no such user").await;
    let error = sent.unwrap_err();
    assert_eq!((error.code(), error.is_final()), (Some(550), true));
    assert!(error.to_string().contains("no such user"), "{error}");
}

#[tokio::test]
async fn greylisting_and_refused_senders_are_tried_again() {
    for (answer, code) in [("451 try again later", 451), ("530 log in first", 530), ("554 not today", 554)] {
        let error = send(answer).await.0.unwrap_err();
        assert_eq!((error.code(), error.is_final()), (Some(code), false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mailer = Mailer::new(&settings(listener.local_addr().unwrap().port())).unwrap().unwrap();
    let error = mailer.send(MAIL).await.unwrap_err();
    assert_eq!((error.code(), error.is_final()), (None, false));
    assert_eq!(error.to_string(), "The mail server did not finish within 10 s");
}

#[test]
fn settings_are_checked() {
    assert!(Mailer::new(&Settings { server: String::new(), ..settings(0) }).unwrap().is_none());
    let nameless = Settings { sender: "alarms".to_owned(), ..settings(0) };
    assert!(Mailer::new(&nameless).unwrap_err().to_string().starts_with("mail.sender "));
    let missing =
        Settings { security: MailSecurity::Tls, ca_file: "/does/not/exist.pem".into(), ..settings(0) };
    assert!(Mailer::new(&missing).unwrap_err().to_string().starts_with("mail.ca_file "));
}
