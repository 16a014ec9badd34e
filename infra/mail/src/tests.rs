use std::{path::Path, sync::Arc};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, split},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

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

/// Takes mails of one connection, answers `RCPT` with `answer`, and returns the received lines.
async fn serve(stream: impl AsyncRead + AsyncWrite, answer: &str) -> String {
    let (read, mut write) = split(stream);
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
}

/// A server without TLS that gives `answer` to the receiver, and what it was sent.
async fn send(security: MailSecurity, answer: &'static str) -> (Result<u16, MailError>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = Settings { security, ..settings(listener.local_addr().unwrap().port()) };
    let mailer = Mailer::new(&settings).unwrap().unwrap();
    let server = tokio::spawn(async move { serve(listener.accept().await.unwrap().0, answer).await });
    let sent = mailer.send(MAIL).await;
    drop(mailer);
    (sent, server.await.unwrap())
}

async fn send_in_clear(answer: &'static str) -> (Result<u16, MailError>, String) {
    send(MailSecurity::None, answer).await
}

/// An authority, and the key and certificate that it gave to `localhost`, until the year 2126.
fn tls_file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tls").join(name)
}

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(tls_file("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls_file("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

#[tokio::test]
async fn a_mail_has_one_receiver_and_an_id_that_stays() {
    let (sent, received) = send_in_clear("250 ok").await;
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
    let (sent, _) = send_in_clear("550 no such user").await;
    let error = sent.unwrap_err();
    assert_eq!((error.code(), error.is_final()), (Some(550), true));
    assert!(error.to_string().contains("no such user"), "{error}");
}

#[tokio::test]
async fn greylisting_and_refused_senders_are_tried_again() {
    for (answer, code) in [("451 try again later", 451), ("530 log in first", 530), ("554 not today", 554)] {
        let error = send_in_clear(answer).await.0.unwrap_err();
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

#[tokio::test]
async fn a_server_with_a_certificate_that_is_trusted_gets_mails_by_tls() {
    for (ca_file, is_trusted) in [(tls_file("authority.pem"), true), (Default::default(), false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = Settings {
            server: "localhost".to_owned(),
            security: MailSecurity::Tls,
            ca_file,
            ..settings(listener.local_addr().unwrap().port())
        };
        let mailer = Mailer::new(&settings).unwrap().unwrap();
        let server = tokio::spawn(async move {
            let stream = acceptor().accept(listener.accept().await.unwrap().0).await.ok()?;
            Some(serve(stream, "250 ok").await)
        });
        let sent = mailer.send(MAIL).await;
        drop(mailer);
        let received = server.await.unwrap().unwrap_or_default();
        assert_eq!((sent.is_ok(), received.contains("RCPT TO:<ops@example.org>")), (is_trusted, is_trusted));
        if let Err(error) = sent {
            assert!(error.to_string().contains("certificate"), "{error}");
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_in_clear_where_tls_is_asked_for() {
    let (sent, received) = send(MailSecurity::Starttls, "250 ok").await;
    assert!(!sent.unwrap_err().is_final());
    assert!(!received.contains("MAIL FROM"), "{received}");
}

/// The reason that is shown when a server greets, reads a command and gives `answer` to it, and ends the connection.
async fn reason_after(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mailer = Mailer::new(&settings(listener.local_addr().unwrap().port())).unwrap().unwrap();
    let server = tokio::spawn(async move {
        let (read, mut write) = split(listener.accept().await.unwrap().0);
        write.write_all(b"220 test\r\n").await.unwrap();
        BufReader::new(read).lines().next_line().await.unwrap();
        write.write_all(answer).await.unwrap();
    });
    let reason = mailer.send(MAIL).await.unwrap_err().to_string();
    server.await.unwrap();
    reason
}

#[tokio::test]
async fn a_server_that_was_reached_is_not_said_to_be_out_of_reach() {
    for (answer, part) in [
        (b"".as_slice(), "ended the connection early"),
        (b"hello\r\n", "is not SMTP"),
        (b"250 \xff\xfe\r\n", "an answer that is not text"),
    ] {
        let reason = reason_after(answer).await;
        assert!(reason.contains(part) && !reason.contains("cannot be reached"), "{reason}");
    }
}
