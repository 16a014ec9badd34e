//! Mails by SMTP. An attempt is one connection, so that a server which was restarted or has gone silent costs one attempt only.

#[cfg(test)]
mod tests;

use std::{fmt, fs, time::Duration, time::SystemTime};

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    address::{Address, AddressError},
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{
        authentication::Credentials,
        client::{Certificate, Tls, TlsParameters},
    },
};
use signalbox_config::{Mail as Settings, MailSecurity};

/// Time limit of an attempt, from the connection to the server's last answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Answers by which a server says that this receiver will never get the mail (RFC 5321, 4.2.3). Others of 5xx may be about
/// the sender's account or the server itself, which people mend.
const REFUSED_RECEIVER: [u16; 4] = [550, 551, 553, 556];

/// Sends mails by the server of the settings.
pub struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    sender: Mailbox,
}

/// A mail to one receiver.
#[derive(Debug, Clone, Copy)]
pub struct Mail<'a> {
    /// Left part of `Message-ID`, equal in all attempts, so that receivers recognise a repetition.
    pub id: &'a str,
    pub to: &'a str,
    pub subject: &'a str,
    pub text: &'a str,
}

/// Reasons why no mails can be sent with these settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("mail.sender must be a mail address such as \"Signalbox <alarms@example.org>\": {0}")]
    Sender(#[from] AddressError),
    #[error("mail.ca_file cannot be read: {0}")]
    Certificate(#[from] std::io::Error),
    #[error("the settings for TLS in [mail] do not fit together: {0}")]
    Tls(#[from] lettre::transport::smtp::Error),
}

/// Reasons why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error("Mail cannot be sent to this address: {0}")]
    Address(AddressError),
    #[error("The mail cannot be written: {0}")]
    Message(#[from] lettre::error::Error),
    #[error("The mail server did not finish within {} s", LIMIT.as_secs())]
    Timeout,
    #[error("{}", explain(.0))]
    Server(#[source] lettre::transport::smtp::Error),
}

impl MailError {
    /// The server's answer, if it gave one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server(error) => error.status().map(u16::from),
            _ => None,
        }
    }

    /// Whether another attempt would be refused in the same way.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Address(_) | Self::Message(_) => true,
            Self::Timeout => false,
            Self::Server(_) => self.code().is_some_and(|code| REFUSED_RECEIVER.contains(&code)),
        }
    }
}

/// The fault and its remedy, with the server's own words where it gave any.
fn explain(error: &lettre::transport::smtp::Error) -> String {
    let words = words(error);
    match error.status() {
        Some(code) => format!("The mail server refused the mail with code {code}{words}"),
        None if error.is_timeout() => {
            "The mail server did not answer in time: check server and port in [mail], or try again later"
                .to_owned()
        }
        None if error.is_response() => {
            "The mail server ended the connection early, or what it answered is not SMTP: if this stays, check server, port and security in \
             [mail]"
                .to_owned()
        }
        None if has_garbage(error) => {
            format!("The mail server gave an answer that is not text: check server, port and security in [mail]{words}")
        }
        None if error.is_tls() => {
            format!("The TLS of the mail server cannot be used: check security and ca_file in [mail]{words}")
        }
        None => format!("The mail server cannot be reached: check server and port in [mail]{words}"),
    }
}

/// Whether the server was reached and answered with bytes that are no text.
fn has_garbage(error: &dyn std::error::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData)
    })
}

/// The innermost cause, on one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut inner = error.source();
    while let Some(deeper) = inner.and_then(std::error::Error::source) {
        inner = Some(deeper);
    }
    let text = inner.map(ToString::to_string).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { text } else { format!(" ({text})") }
}

impl Mailer {
    /// By `settings`; `None` if they name no server.
    ///
    /// # Errors
    /// [`SettingsError`] names the setting.
    pub fn new(settings: &Settings) -> Result<Option<Self>, SettingsError> {
        if settings.server.is_empty() {
            return Ok(None);
        }
        let sender = settings.sender.parse()?;
        let tls = || -> Result<TlsParameters, SettingsError> {
            let mut parameters = TlsParameters::builder(settings.server.clone());
            if !settings.ca_file.as_os_str().is_empty() {
                let certificate = Certificate::from_pem(&fs::read(&settings.ca_file)?)?;
                parameters = parameters.add_root_certificate(certificate);
            }
            Ok(parameters.build()?)
        };
        let (tls, usual_port) = match settings.security {
            MailSecurity::Tls => (Tls::Wrapper(tls()?), 465),
            MailSecurity::Starttls => (Tls::Required(tls()?), 587),
            MailSecurity::None => (Tls::None, 25),
        };
        let port = if settings.port == 0 { usual_port } else { settings.port };
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&settings.server)
            .port(port)
            .tls(tls)
            .timeout(Some(LIMIT));
        if !settings.username.is_empty() {
            let password = settings.password.expose().to_owned();
            transport = transport.credentials(Credentials::new(settings.username.clone(), password));
        }
        Ok(Some(Self { transport: transport.build(), sender }))
    }

    /// Sends `mail`, and gives the code of the server's last answer.
    ///
    /// # Errors
    /// [`MailError`] is a sentence for users.
    pub async fn send(&self, mail: Mail<'_>) -> Result<u16, MailError> {
        let message = self.write(mail)?;
        match tokio::time::timeout(LIMIT, self.transport.send(message)).await {
            Ok(Ok(response)) => Ok(response.code().into()),
            Ok(Err(error)) if error.is_timeout() => Err(MailError::Timeout),
            Ok(Err(error)) => Err(MailError::Server(error)),
            Err(_) => Err(MailError::Timeout),
        }
    }

    fn write(&self, mail: Mail<'_>) -> Result<Message, MailError> {
        let Mail { id, to, subject, text } = mail;
        let receiver: Address = to.parse().map_err(MailError::Address)?;
        let mut message = Message::builder()
            .from(self.sender.clone())
            .to(Mailbox::new(None, receiver))
            .subject(subject)
            .message_id(Some(format!("<{id}@{}>", self.sender.email.domain())))
            .date(SystemTime::now())
            .header(ContentType::TEXT_PLAIN)
            .body(text.to_owned())?;
        // RFC 3834: no vacation responder answers it.
        let name = HeaderName::new_from_ascii_str("Auto-Submitted");
        message.headers_mut().insert_raw(HeaderValue::new(name, "auto-generated".to_owned()));
        Ok(message)
    }
}

impl fmt::Debug for Mailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailer").field("sender", &self.sender.to_string()).finish_non_exhaustive()
    }
}
