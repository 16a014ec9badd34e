//! A mail server that takes mails, refuses their receivers, or hangs.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{eventually_some, seconds};

/// A mail that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMail {
    pub to: String,
    /// Headers and text, as they were sent.
    pub text: String,
}

impl ReceivedMail {
    /// The value of a header that is on one line.
    pub fn header(&self, name: &str) -> String {
        let prefix = format!("{name}: ");
        let line = self.text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default().to_owned()
    }
}

/// The server's reaction to the receiver of a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    Take,
    /// With this code and text.
    Refuse(&'static str),
    /// No answer at all.
    Hang,
}

pub struct MailServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    reaction: Mutex<Reaction>,
    got: Mutex<Vec<ReceivedMail>>,
}

impl MailServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { reaction: Mutex::new(Reaction::Take), got: Mutex::default() });
        let for_server = shared.clone();
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = for_server.clone();
                tokio::spawn(async move { serve(socket, &shared).await });
            }
        });
        Self { address, shared, server }
    }

    pub fn react(&self, reaction: Reaction) {
        *self.shared.reaction.lock().unwrap() = reaction;
    }

    pub fn got(&self) -> Vec<ReceivedMail> {
        self.shared.got.lock().unwrap().clone()
    }

    /// Waits until `count` mails were taken; returns them.
    #[track_caller]
    pub fn until_got(&self, count: usize) -> impl Future<Output = Vec<ReceivedMail>> {
        eventually_some(seconds(20), async move || Some(self.got()).filter(|got| got.len() >= count))
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(socket: TcpStream, shared: &Shared) -> Option<()> {
    let (read, mut write) = socket.into_split();
    let mut lines = BufReader::new(read).lines();
    let (mut to, mut text) = (String::new(), None::<String>);
    write.write_all(b"220 test\r\n").await.ok()?;
    while let Some(line) = lines.next_line().await.ok()? {
        if let Some(mut content) = text.take() {
            if line == "." {
                shared.got.lock().unwrap().push(ReceivedMail { to: to.clone(), text: content });
                write.write_all(b"250 queued\r\n").await.ok()?;
            } else {
                content += &format!("{line}\n");
                text = Some(content);
            }
            continue;
        }
        let reaction = shared.reaction.lock().unwrap().clone();
        let reply = match (line.split(' ').next()?, reaction) {
            ("RCPT", Reaction::Refuse(reply)) => reply,
            ("RCPT", Reaction::Hang) => std::future::pending().await,
            ("RCPT", Reaction::Take) => {
                to = line.split(['<', '>']).nth(1)?.to_owned();
                "250 ok"
            }
            ("DATA", _) => {
                text = Some(String::new());
                "354 go on"
            }
            _ => "250 ok",
        };
        write.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
    }
    Some(())
}
