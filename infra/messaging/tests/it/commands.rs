use std::{
    collections::HashSet,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use signalbox_domain::{
    identity::{Role, User, UserChanges, UserCommand},
    kernel::{CommandOutcome, Decider, ErrorKind, Metadata, Rejection},
};
use signalbox_messaging::{Bus, CommandMessage, CommandReply};
use signalbox_test_support::{TestServers, eventually, metadata, seconds};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use uuid::Uuid;

const ID: Uuid = Uuid::from_u128(7);
const DONE: CommandOutcome = CommandOutcome { version: Some(3), position: Some(11), repeated: false };

fn promote() -> UserCommand {
    UserCommand::Change(UserChanges { role: Some(Role::Admin), ..Default::default() })
}

async fn send(bus: &Bus, metadata: &Metadata) -> Result<CommandOutcome, Rejection> {
    bus.send::<User>(ID, Some(2), metadata, &promote()).await
}

/// Serves on `bus`; the n-th command, from 0, gets the result of `answer` for it, or no answer.
async fn serve(
    bus: &Bus,
    answer: impl Fn(usize) -> Option<CommandReply> + Send + Sync + 'static,
) -> mpsc::UnboundedReceiver<CommandMessage> {
    let (seen, received) = mpsc::unbounded_channel();
    let (count, answer) = (AtomicUsize::new(0), Arc::new(answer));
    let handle = move |command| {
        let reply = answer(count.fetch_add(1, Ordering::SeqCst));
        seen.send(command).ok();
        async move {
            match reply {
                Some(reply) => reply,
                None => pending().await,
            }
        }
    };
    let serving = bus.clone();
    tokio::spawn(async move { serving.serve(CONTEXT, handle).await });
    received
}

const CONTEXT: &str = User::CONTEXT;

fn sending(bus: &Bus, metadata: &Metadata) -> JoinHandle<Result<CommandOutcome, Rejection>> {
    let (bus, metadata) = (bus.clone(), metadata.clone());
    tokio::spawn(async move { send(&bus, &metadata).await })
}

#[tokio::test]
async fn a_command_arrives_whole_and_is_answered() {
    let servers = TestServers::start().await;
    let mut received = serve(&servers.another_bus().await, |_| Some(CommandReply::Done(DONE))).await;
    let command = metadata();
    assert_eq!(send(&servers.bus, &command).await.unwrap(), DONE);
    let message = received.recv().await.unwrap();
    assert_eq!((message.aggregate_type.as_str(), message.aggregate_id), ("user", ID));
    assert_eq!((message.expected_version, message.metadata), (Some(2), command));
    assert_eq!(message.command.get(), serde_json::to_string(&promote()).unwrap());
    servers.finish().await;
}

#[tokio::test]
async fn a_rejection_is_handed_back_at_once() {
    let servers = TestServers::start().await;
    let rejection = Rejection::conflict("last_admin", "The last admin stays.");
    let reply = rejection.clone();
    let mut received =
        serve(&servers.another_bus().await, move |_| Some(CommandReply::Rejected(reply.clone()))).await;
    assert_eq!(send(&servers.bus, &metadata()).await.unwrap_err(), rejection);
    received.recv().await.unwrap();
    assert!(received.try_recv().is_err(), "asked once");
    servers.finish().await;
}

#[tokio::test]
async fn a_command_waits_for_a_handler() {
    let servers = TestServers::start().await;
    let command = metadata();
    let mut sending = sending(&servers.bus, &command);
    let early = timeout(Duration::from_millis(200), &mut sending).await;
    assert!(early.is_err(), "answered without a handler: {early:?}");
    let mut received = serve(&servers.another_bus().await, |_| Some(CommandReply::Done(DONE))).await;
    assert_eq!(timeout(seconds(5), sending).await.unwrap().unwrap().unwrap(), DONE);
    assert_eq!(received.recv().await.unwrap().metadata, command);
    servers.finish().await;
}

#[tokio::test]
async fn a_command_that_got_unavailable_or_no_answer_is_sent_again_under_its_id() {
    let servers = TestServers::start().await;
    let unavailable = || CommandReply::Rejected(Rejection::unavailable("The log is away."));
    let mut received = serve(&servers.another_bus().await, move |number| match number {
        0 => Some(unavailable()),
        1 => None,
        _ => Some(CommandReply::Done(DONE)),
    })
    .await;
    let command = metadata();
    assert_eq!(send(&servers.bus, &command).await.unwrap(), DONE);
    for _ in 0..3 {
        assert_eq!(received.recv().await.unwrap().metadata.command_id, command.command_id);
    }
    servers.finish().await;
}

/// While processes are replaced, handlers of two releases answer.
#[tokio::test]
async fn a_command_that_a_handler_does_not_know_is_sent_to_another() {
    let servers = TestServers::start().await;
    let mut received = serve(&servers.another_bus().await, |number| match number {
        0 => Some(CommandReply::Rejected(Rejection::unreadable_command())),
        1 => Some(CommandReply::Rejected(Rejection::unknown_aggregate())),
        2 => Some(CommandReply::Rejected(Rejection::newer_history())),
        _ => Some(CommandReply::Done(DONE)),
    })
    .await;
    assert_eq!(send(&servers.bus, &metadata()).await.unwrap(), DONE);
    for _ in 0..4 {
        received.recv().await.unwrap();
    }
    servers.finish().await;
}

#[tokio::test]
async fn a_command_that_no_handler_knows_may_be_sent_again_later() {
    for reply in [Rejection::unreadable_command(), Rejection::newer_history()] {
        let servers = TestServers::start().await;
        let is_newer = reply.is_newer_history();
        let unknown = move |_| Some(CommandReply::Rejected(reply.clone()));
        let _received = serve(&servers.another_bus().await, unknown).await;
        let refused = send(&servers.bus, &metadata()).await.unwrap_err();
        assert_eq!((refused.kind, refused.is_newer_history()), (ErrorKind::Unavailable, is_newer));
        assert!(refused.message.contains("upgraded"), "{refused}");
        servers.finish().await;
    }
}

#[tokio::test]
async fn an_unanswered_command_is_unavailable_after_its_deadline() {
    let servers = TestServers::start().await;
    // The ten seconds pass as fast as the sender can ask.
    tokio::time::pause();
    let refused = send(&servers.bus, &metadata()).await.unwrap_err();
    tokio::time::resume();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    servers.finish().await;
}

#[tokio::test]
async fn a_command_survives_the_death_of_the_server() {
    let servers = TestServers::start().await;
    let _received = serve(&servers.another_bus().await, |_| Some(CommandReply::Done(DONE))).await;
    send(&servers.bus, &metadata()).await.unwrap();
    servers.nats.kill().await;
    let sending = sending(&servers.bus, &metadata());
    servers.nats.restart().await;
    assert_eq!(timeout(seconds(12), sending).await.unwrap().unwrap().unwrap(), DONE);
    servers.finish().await;
}

/// Commands lost with a server fail at once: only this test moves the clock.
#[tokio::test]
async fn a_command_lost_with_its_server_is_sent_again_as_soon_as_there_is_another() {
    let servers = TestServers::start_with_cluster().await;
    let (one, rest) = servers.nats_url.split_once(',').unwrap();
    let (sender, server) = (Bus::connect(one).await.unwrap(), Bus::connect(rest).await.unwrap());
    let is_deaf = Arc::new(AtomicBool::new(false));
    let deaf = is_deaf.clone();
    let answer = move |_| (!deaf.swap(false, Ordering::SeqCst)).then_some(CommandReply::Done(DONE));
    let mut received = serve(&server, answer).await;
    send(&sender, &metadata()).await.unwrap();
    received.recv().await.unwrap();

    is_deaf.store(true, Ordering::SeqCst);
    tokio::time::pause();
    // Paused time advances by itself only while no thread blocks.
    let (end, blocking) = std::sync::mpsc::channel::<()>();
    let blocked = spawn_blocking(move || blocking.recv());
    let command = metadata();
    let sending = sending(&sender, &command);
    received.recv().await.unwrap();
    servers.nats.kill_node(0).await;
    let mut again = None;
    // Less than the sender waits for an answer.
    for _ in 0..25 {
        tokio::time::advance(Duration::from_millis(100)).await;
        spawn_blocking(|| std::thread::sleep(Duration::from_millis(40))).await.unwrap();
        again = received.try_recv().ok();
        if again.is_some() {
            break;
        }
    }
    drop(end);
    assert!(blocked.await.unwrap().is_err());
    tokio::time::resume();
    assert_eq!(again.expect("sent again").metadata.command_id, command.command_id);
    assert_eq!(sending.await.unwrap().unwrap(), DONE);
    servers.nats.restart_node(0).await;
    servers.finish().await;
}

#[tokio::test]
async fn two_processes_share_the_commands() {
    let servers = TestServers::start().await;
    let (one, other) = (servers.another_bus().await, servers.another_bus().await);
    let mut received = Vec::new();
    for bus in [&one, &other] {
        received.push(serve(bus, |_| Some(CommandReply::Done(DONE))).await);
    }
    // Both subscribe before the counting starts.
    for receiver in &mut received {
        eventually(seconds(30), async || {
            send(&servers.bus, &metadata()).await.unwrap();
            receiver.try_recv().is_ok()
        })
        .await;
    }
    let commands: Vec<_> = (0..50).map(|_| metadata()).collect();
    for outcome in join_all(commands.iter().map(|command| send(&servers.bus, command))).await {
        outcome.unwrap();
    }
    let mut handled = Vec::new();
    for receiver in &mut received {
        while let Ok(message) = receiver.try_recv() {
            handled.push(message.metadata.command_id);
        }
    }
    let sent: HashSet<_> = commands.iter().map(|command| command.command_id).collect();
    assert_eq!(handled.iter().filter(|id| sent.contains(*id)).count(), sent.len());
    servers.finish().await;
}

#[tokio::test]
async fn a_message_that_is_no_command_is_rejected() {
    let servers = TestServers::start().await;
    let _received = serve(&servers.bus, |_| Some(CommandReply::Done(DONE))).await;
    send(&servers.bus, &metadata()).await.unwrap();
    let client = servers.nats.client().await;
    let answer = client.request(format!("cmd.{CONTEXT}"), "nonsense".into()).await.unwrap();
    let reply: CommandReply = serde_json::from_slice(&answer.payload).unwrap();
    assert!(matches!(reply, CommandReply::Rejected(rejection) if rejection.code == "unreadable_command"));
    servers.finish().await;
}

#[tokio::test]
async fn the_trace_of_a_request_travels_with_its_command() {
    let servers = TestServers::start().await;
    let client = servers.nats.client().await;
    let mut commands = client.subscribe(format!("cmd.{CONTEXT}")).await.unwrap();
    client.flush().await.unwrap();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sending = sending(&servers.bus, &Metadata { traceparent: Some(trace.to_owned()), ..metadata() });
    let command = timeout(seconds(5), commands.next()).await.unwrap().unwrap();
    sending.abort();
    assert_eq!(command.headers.unwrap().get("traceparent").unwrap().as_str(), trace);
    servers.finish().await;
}

#[tokio::test]
async fn a_command_that_is_refused_here_counts_as_no_answer() {
    let servers = TestServers::start().await;
    // More than any server here takes.
    let name = "x".repeat(9 << 20);
    let rename = UserCommand::Change(UserChanges { username: Some(name), ..Default::default() });
    let refused = servers.bus.send::<User>(ID, None, &metadata(), &rename).await.unwrap_err();
    assert_eq!(refused.code, "too_large");
    assert_eq!(servers.bus.since_answer(), None);
    servers.finish().await;
}
