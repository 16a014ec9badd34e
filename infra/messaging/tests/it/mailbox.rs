use std::time::Duration;

use async_nats::jetstream::{self, stream};
use serde_json::json;
use signalbox_domain::kernel::AgentId;
use signalbox_messaging::{BusError, Mail, MailMessage, Mailbox};
use signalbox_test_support::{TestServers, eventually, seconds};
use uuid::Uuid;

const PRESS: AgentId = AgentId(Uuid::from_u128(1));
const STORE: AgentId = AgentId(Uuid::from_u128(2));
const SHORT: Duration = Duration::from_millis(100);

fn message(text: &str) -> MailMessage {
    MailMessage { kind: "transfer_request".to_owned(), data: json!({ "text": text }) }
}

async fn open(servers: &TestServers) -> Mailbox {
    Mailbox::open(&servers.bus).await.unwrap()
}

/// The agent's next message; `None` if none arrives within a short time.
async fn fetch(mailbox: &Mailbox, agent: AgentId) -> Vec<Mail> {
    mailbox.fetch(agent, 10, SHORT).await.unwrap()
}

fn texts(mails: &[Mail]) -> Vec<&str> {
    mails.iter().map(|mail| mail.message.data["text"].as_str().unwrap()).collect()
}

fn ids(mails: &[Mail]) -> Vec<i64> {
    mails.iter().map(|mail| mail.id).collect()
}

/// As a gateway does it for an agent.
pub async fn acknowledge(mailbox: &Mailbox, agent: AgentId, ids: &[i64]) -> Result<(), BusError> {
    mailbox.remove_waiting(&mailbox.waiting(agent, ids).await?).await
}

/// Receives all pending messages, so that the test leaves none.
async fn finish(servers: TestServers, mailbox: Mailbox) {
    for agent in [PRESS, STORE] {
        mailbox.remove(agent).await.unwrap();
    }
    servers.finish().await;
}

#[tokio::test]
async fn messages_are_given_to_their_agent_in_order() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    for text in ["one", "two", "three"] {
        mailbox.post(PRESS, text, &message(text)).await.unwrap();
    }
    mailbox.post(STORE, "other", &message("other")).await.unwrap();
    let mails = fetch(&mailbox, PRESS).await;
    assert_eq!(texts(&mails), ["one", "two", "three"]);
    assert!(ids(&mails).iter().all(|id| *id > 0));
    assert_eq!(texts(&fetch(&mailbox, STORE).await), ["other"]);
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn a_message_that_is_posted_twice_before_it_is_taken_is_one() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    mailbox.post(PRESS, "key.1", &message("one")).await.unwrap();
    mailbox.post(PRESS, "key.1", &message("one")).await.unwrap();
    let mails = fetch(&mailbox, PRESS).await;
    assert_eq!(texts(&mails), ["one"]);
    mailbox.post(PRESS, "key.1", &message("one")).await.unwrap();
    assert!(fetch(&mailbox, PRESS).await.is_empty(), "given out, but not yet taken");
    acknowledge(&mailbox, PRESS, &ids(&mails)).await.unwrap();
    mailbox.post(PRESS, "key.1", &message("again")).await.unwrap();
    assert_eq!(texts(&fetch(&mailbox, PRESS).await), ["again"]);
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn a_message_that_was_given_out_is_held_back() {
    let servers = TestServers::start().await;
    let (mailbox, elsewhere) =
        (open(&servers).await, Mailbox::open(&servers.another_bus().await).await.unwrap());
    mailbox.post(PRESS, "one", &message("one")).await.unwrap();
    assert_eq!(fetch(&mailbox, PRESS).await.len(), 1);
    assert!(fetch(&mailbox, PRESS).await.is_empty());
    assert!(fetch(&elsewhere, PRESS).await.is_empty());
    assert!(mailbox.find(PRESS, "one").await.unwrap().is_some());
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn no_more_messages_are_given_out_than_asked_for() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    for text in ["one", "two", "three"] {
        mailbox.post(PRESS, text, &message(text)).await.unwrap();
    }
    assert_eq!(texts(&mailbox.fetch(PRESS, 2, SHORT).await.unwrap()), ["one", "two"]);
    assert_eq!(texts(&mailbox.fetch(PRESS, 1, SHORT).await.unwrap()), ["three"]);
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn a_waiting_agent_gets_a_message_the_moment_it_is_posted() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    let waiting = {
        let mailbox = mailbox.clone();
        tokio::spawn(async move { mailbox.fetch(PRESS, 10, seconds(20)).await.unwrap() })
    };
    mailbox.post(PRESS, "one", &message("one")).await.unwrap();
    let mails = tokio::time::timeout(seconds(5), waiting).await.unwrap().unwrap();
    assert_eq!(texts(&mails), ["one"]);
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn any_gateway_takes_the_acknowledgement() {
    let servers = TestServers::start().await;
    let (mailbox, elsewhere) =
        (open(&servers).await, Mailbox::open(&servers.another_bus().await).await.unwrap());
    mailbox.post(PRESS, "one", &message("one")).await.unwrap();
    let mails = fetch(&mailbox, PRESS).await;
    for _ in 0..2 {
        acknowledge(&elsewhere, PRESS, &ids(&mails)).await.unwrap();
    }
    assert!(mailbox.find(PRESS, "one").await.unwrap().is_none());
    servers.finish().await;
}

#[tokio::test]
async fn ids_that_are_unknown_or_of_another_agent_are_ignored() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    mailbox.post(STORE, "one", &message("one")).await.unwrap();
    let mails = fetch(&mailbox, STORE).await;
    acknowledge(&mailbox, PRESS, &ids(&mails)).await.unwrap();
    acknowledge(&mailbox, STORE, &[-1, 0, 999_999, i64::MAX]).await.unwrap();
    assert!(mailbox.find(STORE, "one").await.unwrap().is_some());
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn an_agent_that_acknowledges_is_never_held_up() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    for round in 0..12 {
        for number in 0..100 {
            mailbox.post(PRESS, &format!("{round}.{number}"), &message("one")).await.unwrap();
        }
        let mails = mailbox.fetch(PRESS, 100, seconds(5)).await.unwrap();
        assert_eq!(mails.len(), 100, "round {round}");
        acknowledge(&mailbox, PRESS, &ids(&mails)).await.unwrap();
    }
    servers.finish().await;
}

#[tokio::test]
async fn an_acknowledgement_that_fails_is_repeated_and_one_that_is_late_is_none_to_it() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    mailbox.post(PRESS, "one", &message("one")).await.unwrap();
    let ids = ids(&fetch(&mailbox, PRESS).await);
    let taken = mailbox.waiting(PRESS, &ids).await.unwrap();
    assert_eq!(taken[0].key, "one");
    assert!(mailbox.waiting(STORE, &ids).await.unwrap().is_empty());
    servers.nats.kill().await;
    mailbox.remove_waiting(&taken).await.unwrap_err();
    servers.nats.restart().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    assert!(mailbox.find(PRESS, "one").await.unwrap().is_some());
    assert_eq!(mailbox.waiting(PRESS, &ids).await.unwrap(), taken);
    mailbox.remove_waiting(&taken).await.unwrap();
    assert!(mailbox.find(PRESS, "one").await.unwrap().is_none());
    mailbox.remove_waiting(&taken).await.unwrap();
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn messages_outlive_the_death_of_the_server() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    mailbox.post(PRESS, "given", &message("given")).await.unwrap();
    let given = fetch(&mailbox, PRESS).await;
    mailbox.post(PRESS, "waiting", &message("waiting")).await.unwrap();
    servers.nats.kill().await;
    servers.nats.restart().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    // A killed server may lose the record of deliveries: it may deliver the first message again, but never drop one.
    let mut mails = Vec::new();
    while !texts(&mails).contains(&"waiting") {
        let more = mailbox.fetch(PRESS, 10, seconds(5)).await.unwrap();
        assert!(!more.is_empty(), "the server dropped a message: {:?}", texts(&mails));
        mails.extend(more);
    }
    acknowledge(&mailbox, PRESS, &ids(&given)).await.unwrap();
    assert!(mailbox.find(PRESS, "given").await.unwrap().is_none());
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn a_message_that_is_withdrawn_takes_no_other_along() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    for key in ["one", "two"] {
        mailbox.post(PRESS, key, &message(key)).await.unwrap();
    }
    let mails = fetch(&mailbox, PRESS).await;
    assert_eq!(texts(&mails), ["one", "two"]);
    mailbox.withdraw(PRESS, "two").await.unwrap();
    mailbox.post(PRESS, "three", &message("three")).await.unwrap();
    let three = ids(&fetch(&mailbox, PRESS).await);
    acknowledge(&mailbox, PRESS, &three).await.unwrap();
    let stream = jetstream::new(servers.nats.client().await).get_stream("MAIL").await.unwrap();
    let info = async || stream.consumer_info(format!("agent-{PRESS}")).await.unwrap();
    eventually(seconds(10), async || info().await.num_ack_pending == 1).await;
    // A message at or below the floor is never given out again.
    assert!(info().await.ack_floor.stream_sequence < mails[0].id.unsigned_abs());
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn posting_works_after_the_server_has_lost_everything() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    mailbox.post(PRESS, "lost", &message("lost")).await.unwrap();
    servers.nats.wipe().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    mailbox.post(PRESS, "new", &message("new")).await.unwrap();
    assert_eq!(texts(&fetch(&mailbox, PRESS).await), ["new"]);
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn every_question_is_answered_after_the_server_has_lost_everything() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    servers.nats.wipe().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    assert!(fetch(&mailbox, PRESS).await.is_empty());
    servers.nats.wipe().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    assert!(mailbox.find(PRESS, "lost").await.unwrap().is_none());
    acknowledge(&mailbox, PRESS, &[1]).await.unwrap();
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn an_agent_that_waits_while_the_server_loses_everything_gets_later_messages() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    let waiting = {
        let mailbox = mailbox.clone();
        tokio::spawn(async move { mailbox.fetch(PRESS, 10, seconds(3)).await })
    };
    servers.nats.wipe().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    // Whether it fails or ends empty, it ends, and the agent polls again.
    let _ = tokio::time::timeout(seconds(20), waiting).await.unwrap().unwrap();
    mailbox.post(PRESS, "new", &message("new")).await.unwrap();
    assert_eq!(texts(&fetch(&mailbox, PRESS).await), ["new"]);
    finish(servers, mailbox).await;
}

#[tokio::test]
async fn a_removed_mailbox_is_empty_and_may_be_used_again() {
    let servers = TestServers::start().await;
    let mailbox = open(&servers).await;
    for text in ["one", "two"] {
        mailbox.post(PRESS, text, &message(text)).await.unwrap();
    }
    mailbox.post(STORE, "other", &message("other")).await.unwrap();
    fetch(&mailbox, PRESS).await;
    for _ in 0..2 {
        mailbox.remove(PRESS).await.unwrap();
    }
    assert!(fetch(&mailbox, PRESS).await.is_empty());
    assert!(mailbox.find(STORE, "other").await.unwrap().is_some());
    mailbox.post(PRESS, "one", &message("new")).await.unwrap();
    assert_eq!(texts(&fetch(&mailbox, PRESS).await), ["new"]);
    finish(servers, mailbox).await;
}

/// Replaces the stream by one that, as after a full disk, answers and acknowledges nothing.
async fn mute(servers: &TestServers) {
    let jetstream = jetstream::new(servers.nats.client().await);
    let _ = jetstream.delete_stream("MAIL").await;
    let mute = stream::Config {
        name: "MAIL".to_owned(),
        subjects: vec!["mail.agent.>".to_owned()],
        no_ack: true,
        ..stream::Config::default()
    };
    jetstream.create_stream(mute).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_stores_nothing_is_made_anew() {
    let servers = TestServers::start().await;
    mute(&servers).await;
    let mailbox = open(&servers).await;
    mailbox.post(PRESS, "one", &message("one")).await.unwrap_err();
    eventually(seconds(60), async || mailbox.post(PRESS, "two", &message("two")).await.is_ok()).await;
    assert_eq!(texts(&fetch(&mailbox, PRESS).await), ["two"]);
    finish(servers, mailbox).await;
}
