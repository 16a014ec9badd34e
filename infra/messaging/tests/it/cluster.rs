use signalbox_messaging::{Bus, MailMessage, Mailbox};
use signalbox_test_support::{TestServers, eventually, seconds};
use uuid::Uuid;

use crate::mailbox::acknowledge;

fn message(text: &str) -> MailMessage {
    MailMessage { kind: "note".to_owned(), data: text.into() }
}

#[tokio::test]
async fn mail_outlives_the_leader_of_its_stream() {
    let servers = TestServers::start_with_cluster().await;
    let mailbox = Mailbox::open(&servers.bus).await.unwrap();
    let agent = Uuid::from_u128(1).into();
    mailbox.post(agent, "before", &message("before")).await.unwrap();
    let leader = servers.nats.leader_of("MAIL").await;
    servers.nats.kill_node(leader).await;
    eventually(seconds(30), async || mailbox.post(agent, "after", &message("after")).await.is_ok()).await;
    let mut found = Vec::new();
    eventually(seconds(40), async || {
        let mails = mailbox.fetch(agent, 10, seconds(1)).await.unwrap_or_default();
        found.extend(mails.into_iter().map(|mail| (mail.id, mail.message.data)));
        found.len() == 2
    })
    .await;
    assert_eq!(found.iter().map(|(_, data)| data.as_str().unwrap()).collect::<Vec<_>>(), ["before", "after"]);
    servers.nats.restart_node(leader).await;
    let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
    eventually(seconds(30), async || acknowledge(&mailbox, agent, &ids).await.is_ok()).await;
    servers.finish().await;
}

#[tokio::test]
async fn a_stream_gets_the_configured_number_of_replicas() {
    let servers = TestServers::start_with_cluster().await;
    let copies = async |bus: &Bus| {
        let standings = bus.stream_standings().await.ok()?;
        standings
            .iter()
            .find(|stream| stream.name == "MAIL")
            .map(|stream| (stream.configured, stream.current))
    };
    let plain = servers.bus.clone().with_replicas(1);
    eventually(seconds(20), async || Mailbox::open(&plain).await.is_ok()).await;
    assert_eq!(copies(&plain).await, Some((1, 1)));
    Mailbox::open(&servers.bus).await.unwrap();
    eventually(seconds(20), async || copies(&servers.bus).await == Some((3, 3))).await;
    servers.finish().await;
}

#[tokio::test]
async fn one_server_cannot_keep_three_copies_and_says_so() {
    let servers = TestServers::start_with_own_nats().await;
    let bus = servers.bus.clone().with_replicas(servers.nats.size() + 2);
    let refused = signalbox_messaging::EventStream::open(&bus).await.unwrap_err().to_string();
    assert!(refused.contains("add servers or set it lower"), "{refused}");
    servers.finish().await;
}
