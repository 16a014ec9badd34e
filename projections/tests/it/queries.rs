//! Every query is run on the real schema; the log of it all is folded from commands.

mod agent_requests;
mod identity;

use std::{collections::BTreeSet, fs, path::Path};

use futures::future::join_all;
use signalbox_domain::transfer::{
    Agent, AgentCommand, AgentRef, AgentToken, AgentTokenCommand, Arrival, Job, JobCommand, JobRef, JobType,
    NewAgentToken, NewTransfer, SkipReason, Transfer, TransferCommand, TransportMode,
};
use signalbox_projections::{
    Listed, Lookup, Page,
    transfer::{
        AgentRow, AgentTokenRow, JobRow, TransferRow,
        queries::{self as transfer, Filter},
    },
};
use signalbox_test_support::{eventually_some, seconds};
use uuid::Uuid;

use crate::world::{OWNER, World, at, digest, file, new_transfer, spec};

const ALL: Page = Page { limit: 100, offset: 0 };
const STRANGER: Uuid = Uuid::from_u128(99);

async fn two_agents(world: &World) -> [AgentRef; 2] {
    [world.writer.agent(1, "Press").await, world.writer.agent(2, "store").await]
}

async fn connect(world: &World, agent: AgentRef, session: Uuid) {
    let connect = AgentCommand::Connect { session, transport: TransportMode::Websocket };
    world.writer.run::<Agent>(agent.id.0, connect).await;
}

#[tokio::test]
async fn agents_are_found_by_number_key_and_filter() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    connect(&world, store, STRANGER).await;
    world.fold().await;
    let pool = world.pool();
    assert_eq!(transfer::agent(pool, 1).await.unwrap().unwrap().id, press.id);
    assert_eq!(transfer::agent_by_id(pool, store.id).await.unwrap().unwrap().number, 2);
    let mut keys = transfer::agent_keys(pool, &[2, 1, 9]).await.unwrap();
    keys.sort();
    assert_eq!(keys, [(1, press.id), (2, store.id)]);
    let named = |name: &str| Filter { name: Some(name.to_owned()), ..Filter::default() };
    let online = Filter { status: Some("online".into()), kind: Some("server".into()), ..Filter::default() };
    for (filter, expected) in
        [(Filter::default(), vec![1, 2]), (named("PRES"), vec![1]), (named("%"), vec![]), (online, vec![2])]
    {
        let (rows, count) = transfer::agents(pool, &filter, AgentRow::default_order(), ALL).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(count, expected.len() as i64);
    }
    world.servers.finish().await;
}

async fn note_presence(world: &World, agent: AgentRef, session: Uuid, second: i64) {
    sqlx::query("INSERT INTO ops.agent_presence VALUES ($1, $2, $3)
                 ON CONFLICT (agent_id) DO UPDATE SET session = excluded.session, last_seen = excluded.last_seen")
        .bind(agent.id.0)
        .bind(session)
        .bind(at(second))
        .execute(world.pool())
        .await
        .unwrap();
}

#[tokio::test]
async fn presence_is_noted_for_present_sessions_only() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    connect(&world, store, STRANGER).await;
    world.fold().await;
    let pool = world.pool();
    let (heard, late) =
        ([(store.id, STRANGER, 5.0), (press.id, STRANGER, 5.0)], [(store.id, STRANGER, 60.0)]);
    transfer::note_presences(pool, &heard).await.unwrap();
    transfer::note_presences(pool, &late).await.unwrap();
    let noted = "SELECT agent_id, last_seen > now() - interval '30 s' FROM ops.agent_presence";
    let noted: Vec<(Uuid, bool)> = sqlx::query_as(noted).fetch_all(pool).await.unwrap();
    assert_eq!(noted, [(store.id.0, true)]);
    world.servers.finish().await;
}

#[tokio::test]
async fn presence_of_the_present_session_counts_as_a_sign_of_life() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    let session = Uuid::from_u128(3);
    connect(&world, press, session).await;
    connect(&world, store, session).await;
    world.fold().await;
    note_presence(&world, press, session, 50).await;
    note_presence(&world, store, STRANGER, 50).await;
    let pool = world.pool();
    assert_eq!(transfer::agent_by_id(pool, press.id).await.unwrap().unwrap().last_seen, Some(at(50)));
    assert_eq!(transfer::agent_by_id(pool, store.id).await.unwrap().unwrap().last_seen, Some(at(0)));
    assert!(transfer::warned_agents(pool, &[press.id, store.id]).await.unwrap().is_empty());
    // By the database's clock, independent of the events.
    for (age, silent) in [
        (0, vec![(store.id, session, false)]),
        (46, vec![(press.id, session, true), (store.id, session, false)]),
    ] {
        sqlx::query("UPDATE ops.agent_presence SET last_seen = now() - make_interval(secs => $1)")
            .bind(f64::from(age))
            .execute(pool)
            .await
            .unwrap();
        assert_eq!(transfer::silent_agents(pool, 45.0).await.unwrap(), silent);
    }
    world.servers.finish().await;
}

#[tokio::test]
async fn an_absence_is_found_until_it_is_recorded_or_over() {
    let world = World::start().await;
    let agents = two_agents(&world).await;
    let session = Uuid::from_u128(3);
    for (second, agent) in (1..).zip(agents) {
        world.go_to(second);
        connect(&world, agent, session).await;
        let disconnect = AgentCommand::Disconnect { session, reason: "closed".to_owned() };
        world.writer.run::<Agent>(agent.id.0, disconnect).await;
    }
    world.fold().await;
    let [press, store] = agents.map(|agent| agent.id);
    let absent = async |second| transfer::absent_agents(world.pool(), at(second)).await.unwrap();
    assert_eq!(absent(0).await, []);
    assert_eq!(absent(2).await, [(press, at(1)), (store, at(2))]);
    world.writer.run::<Agent>(press.0, AgentCommand::ReportAbsence { since: at(1) }).await;
    world.fold().await;
    assert_eq!(absent(2).await, [(store, at(2))]);
    connect(&world, agents[1], STRANGER).await;
    world.fold().await;
    assert_eq!(absent(2).await, []);
    world.servers.finish().await;
}

async fn token(world: &World, number: i64, agent: AgentRef, expires: Option<i64>) -> Uuid {
    let id = world.clock.new_id();
    let new = NewAgentToken {
        number,
        name: format!("token-{number}"),
        agent,
        description: None,
        secret_sha256: digest(number as u8),
        expires_at: expires.map(at),
    };
    world.writer.run::<AgentToken>(id, AgentTokenCommand::Create(new)).await;
    id
}

#[tokio::test]
async fn tokens_are_found_until_they_expire() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    let (lasting, expiring) = (token(&world, 1, press, None).await, token(&world, 2, store, Some(60)).await);
    world.fold().await;
    let pool = world.pool();
    let (rows, count) =
        transfer::agent_tokens(pool, None, AgentTokenRow::default_order(), ALL).await.unwrap();
    assert_eq!((rows.iter().map(|row| row.number).collect::<Vec<_>>(), count), (vec![2, 1], 2));
    assert_eq!(
        transfer::agent_tokens(pool, Some(1), AgentTokenRow::default_order(), ALL).await.unwrap().1,
        1
    );
    assert_eq!(transfer::agent_token(pool, 2).await.unwrap().unwrap().id.0, expiring);
    assert_eq!(transfer::agent_token_by_id(pool, lasting.into()).await.unwrap().unwrap().number, 1);
    let secret = digest(2).to_string();
    assert!(transfer::live_agent_token(pool, &secret, at(59)).await.unwrap().is_some());
    assert!(transfer::live_agent_token(pool, &secret, at(60)).await.unwrap().is_none());
    let ids = [lasting, expiring, STRANGER];
    assert_eq!(transfer::live_tokens(pool, &ids, at(59)).await.unwrap().len(), 2);
    assert_eq!(transfer::live_tokens(pool, &ids, at(60)).await.unwrap(), [lasting]);
    assert_eq!(transfer::agent_token_hashes(pool, at(59)).await.unwrap().len(), 2);
    let hashes = transfer::agent_token_hashes(pool, at(60)).await.unwrap();
    assert_eq!(hashes.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [lasting]);
    world.servers.finish().await;
}

/// A job of `OWNER`, due at 600 s.
async fn job(world: &World) -> (JobRef, [AgentRef; 2]) {
    let agents = two_agents(world).await;
    (world.writer.job(5, spec("Nightly", agents[0], agents[1])).await, agents)
}

#[tokio::test]
async fn jobs_are_found_by_their_owner_alone() {
    let world = World::start().await;
    let (job, [press, _]) = job(&world).await;
    world.fold().await;
    let pool = world.pool();
    assert_eq!(transfer::job(pool, OWNER, 5).await.unwrap().unwrap().id, job.id);
    assert_eq!(transfer::job(pool, STRANGER.into(), 5).await.unwrap(), None);
    assert_eq!(transfer::job_by_id(pool, job.id).await.unwrap().unwrap().number, 5);
    assert_eq!(transfer::job_owners(pool).await.unwrap(), [OWNER]);
    assert_eq!(transfer::jobs_of(pool, OWNER, 9).await.unwrap(), [job.id]);
    assert_eq!(transfer::jobs_of_agent(pool, press.id).await.unwrap(), [(5, "Nightly".to_owned())]);
    let full = Filter {
        status: Some("active".into()),
        kind: Some("push".into()),
        name: Some("night".into()),
        agent: Some(2),
        from: Some(at(0)),
        to: Some(at(1)),
        job: None,
    };
    let inactive = Filter { status: Some("inactive".into()), ..Filter::default() };
    for (owner, filter, count) in [
        (OWNER.0, Filter::default(), 1),
        (OWNER.0, full, 1),
        (OWNER.0, inactive, 0),
        (STRANGER, Filter::default(), 0),
    ] {
        let (rows, counted) =
            transfer::jobs(pool, owner.into(), &filter, JobRow::default_order(), ALL).await.unwrap();
        assert_eq!((rows.len() as i64, counted), (count, count), "{filter:?}");
    }
    world.servers.finish().await;
}

#[tokio::test]
async fn a_word_of_a_newer_version_fails_no_list_and_stays_in_its_row() {
    let world = World::start().await;
    let (job, _) = job(&world).await;
    world.fold().await;
    let pool = world.pool();
    sqlx::query("UPDATE read.jobs SET overlap = 'replace'").execute(pool).await.unwrap();
    let (rows, total) =
        transfer::jobs(pool, OWNER, &Filter::default(), JobRow::default_order(), ALL).await.unwrap();
    assert_eq!((rows[0].settings.overlap.as_str(), total), ("replace", 1));
    let unknown = rows[0].settings.to_spec().unwrap_err().to_string();
    assert!(unknown.contains("Overlap") && unknown.contains("\"replace\""), "{unknown}");
    // Another event is folded into the row, with the word that it does not know.
    let skip = JobCommand::SkipFiring { scheduled_for: at(600), reason: SkipReason::TooLate };
    world.writer.run::<Job>(job.id.0, skip).await;
    world.fold().await;
    let row = transfer::job_by_id(pool, job.id).await.unwrap().unwrap();
    assert_eq!((row.version, row.settings.overlap.as_str()), (2, "replace"));
    world.servers.finish().await;
}

#[tokio::test]
async fn due_jobs_are_found_when_their_time_has_come() {
    let world = World::start().await;
    let (job, agents) = job(&world).await;
    world.fold().await;
    let pool = world.pool();
    assert_eq!(transfer::due_jobs(pool, at(599), 10).await.unwrap(), []);
    assert_eq!(transfer::due_jobs(pool, at(600), 10).await.unwrap()[0].id, job.id);
    let is_busy = async |except| transfer::job_is_busy(pool, job.id, except).await.unwrap();
    assert!(!is_busy(STRANGER.into()).await);
    let id = world.writer.transfer(new_transfer(1, Some(job), &spec("Nightly", agents[0], agents[1]))).await;
    world.fold().await;
    assert!(is_busy(STRANGER.into()).await);
    assert!(!is_busy(id.into()).await, "by no other one");
    world.writer.run::<Transfer>(id, TransferCommand::Cancel).await;
    world.fold().await;
    assert!(!is_busy(STRANGER.into()).await);
    world.servers.finish().await;
}

/// Two transfers of `OWNER`: number 1 of a job and queued, number 2 by hand and dispatched.
async fn two_transfers(world: &World) -> ([Uuid; 2], [AgentRef; 2]) {
    let (job, agents) = job(world).await;
    let spec = spec("Nightly", agents[0], agents[1]);
    let queued = world.writer.transfer(new_transfer(1, Some(job), &spec)).await;
    let tree = NewTransfer {
        kind: JobType::Pull,
        source_path: "/tree/".to_owned(),
        filename: "Tree".to_owned(),
        ..new_transfer(2, None, &spec)
    };
    let dispatched = world.writer.transfer(tree).await;
    world.writer.run::<Transfer>(dispatched, TransferCommand::Dispatch).await;
    ([queued, dispatched], agents)
}

#[tokio::test]
async fn transfers_are_found_by_their_owner_and_their_agents() {
    let world = World::start().await;
    let ([queued, dispatched], [press, store]) = two_transfers(&world).await;
    world.fold().await;
    let pool = world.pool();
    assert_eq!(transfer::transfer(pool, OWNER, 1).await.unwrap().unwrap().id.0, queued);
    assert_eq!(transfer::transfer(pool, STRANGER.into(), 1).await.unwrap(), None);
    assert_eq!(transfer::transfer_ever(pool, OWNER, 1).await.unwrap().unwrap().id.0, queued);
    for agent in [press, store] {
        assert!(transfer::transfer_of_agent(pool, agent.id, 2).await.unwrap().is_some());
        assert!(transfer::transfer_of_agent_ever(pool, agent.id, 2).await.unwrap().is_some());
    }
    assert_eq!(transfer::transfer_of_agent(pool, STRANGER.into(), 2).await.unwrap(), None);
    let at_press = transfer::transfers_at_agent(pool, press.id).await.unwrap();
    let versions = transfer::versions_in(pool, &["queued", "dispatched", "uploading"]).await.unwrap();
    let ids: Vec<_> = versions.iter().map(|(id, _)| *id).collect();
    assert_eq!(transfer::transfers_by_id(pool, &ids).await.unwrap().len(), versions.len());
    assert_eq!(at_press.iter().map(|row| row.id.0).collect::<Vec<_>>(), [dispatched]);
    assert_eq!(transfer::transfers_at_agent(pool, store.id).await.unwrap(), []);
    assert_eq!(transfer::transfer_by_id(pool, dispatched.into()).await.unwrap().unwrap().number, 2);
    assert!(!transfer::transfer_is_cancelled(pool, dispatched.into()).await.unwrap());
    let of_job = Filter { job: Some(5), ..Filter::default() };
    let full = Filter {
        status: Some("pending".into()),
        kind: Some("pull".into()),
        name: Some("tree".into()),
        job: None,
        agent: Some(1),
        from: Some(at(0)),
        to: Some(at(1)),
    };
    for (filter, expected) in [(Filter::default(), vec![2, 1]), (of_job, vec![1]), (full, vec![2])] {
        let (rows, count) =
            transfer::transfers(pool, OWNER, &filter, TransferRow::default_order(), ALL).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(count, expected.len() as i64);
    }
    world.servers.finish().await;
}

#[tokio::test]
async fn work_on_transfers_is_found_by_phase_and_time() {
    let world = World::start().await;
    let ([queued, dispatched], _) = two_transfers(&world).await;
    world.fold().await;
    let pool = world.pool();
    let waiting = transfer::due_transfers(pool, at(0), 10).await.unwrap();
    assert_eq!(waiting.iter().map(|row| row.id.0).collect::<Vec<_>>(), [queued]);
    let phases = ["dispatched", "uploading"];
    let idle = transfer::idle_transfers(pool, &phases, at(0), Uuid::nil().into(), 10).await.unwrap();
    assert_eq!(idle.iter().map(|row| row.id.0).collect::<Vec<_>>(), [dispatched]);
    assert_eq!(transfer::idle_transfers(pool, &phases, at(-1), Uuid::nil().into(), 10).await.unwrap(), []);
    assert_eq!(transfer::idle_transfers(pool, &phases, at(0), dispatched.into(), 10).await.unwrap(), []);

    world.writer.run::<Transfer>(queued, TransferCommand::Fail { reason: "no".to_owned() }).await;
    world.writer.run::<Transfer>(dispatched, TransferCommand::Cancel).await;
    world.fold().await;
    let cancelled = transfer::uncleaned_transfers(pool, at(-1), &[], 10).await.unwrap();
    assert_eq!(cancelled.iter().map(|row| row.id.0).collect::<Vec<_>>(), [dispatched]);
    assert_eq!(transfer::uncleaned_transfers(pool, at(0), &[], 10).await.unwrap().len(), 2);
    world.servers.finish().await;
}

async fn due(world: &World) -> Vec<Uuid> {
    world.fold().await;
    let rows = transfer::due_transfers(world.pool(), world.clock.now(), 10).await.unwrap();
    rows.into_iter().map(|row| row.id.0).collect()
}

#[tokio::test]
async fn a_pull_is_due_once_its_destination_is_connected() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    let pull = NewTransfer { kind: JobType::Pull, ..new_transfer(1, None, &spec("Nightly", press, store)) };
    let id = world.writer.transfer(pull).await;
    connect(&world, press, STRANGER).await;
    assert!(due(&world).await.is_empty());
    connect(&world, store, STRANGER).await;
    assert_eq!(due(&world).await, [id]);
    world.servers.finish().await;
}

#[tokio::test]
async fn a_staged_transfer_is_due_until_its_destination_was_asked() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    let id = world.writer.transfer(new_transfer(1, None, &spec("Nightly", press, store))).await;
    let run = async |command| world.writer.run::<Transfer>(id, command).await;
    run(TransferCommand::Dispatch).await;
    run(TransferCommand::Stage { files: vec![file("report.csv", 7)] }).await;
    assert!(due(&world).await.is_empty());
    run(TransferCommand::ReportComplete { agent: press.id, arrival: Arrival::default() }).await;
    assert_eq!(due(&world).await, [id]);
    run(TransferCommand::Dispatch).await;
    assert!(due(&world).await.is_empty());
    world.servers.finish().await;
}

#[tokio::test]
async fn staged_entries_are_sorted_by_the_bytes_of_their_names() {
    let world = World::start().await;
    let ([_, tree], _) = two_transfers(&world).await;
    let files = ["b", "a/x", "B", "ä", "a-"].map(|name| file(name, 7)).to_vec();
    world.writer.run::<Transfer>(tree, TransferCommand::Stage { files }).await;
    world.fold().await;
    let pool = world.pool();
    let sorted = ["B", "a-", "a/x", "b", "ä"];
    let names = |files: Vec<signalbox_projections::transfer::TransferFileRow>| -> Vec<String> {
        files.into_iter().map(|file| file.name).collect()
    };
    assert_eq!(names(transfer::transfer_files(pool, tree.into(), 10).await.unwrap()), sorted);
    assert_eq!(names(transfer::transfer_files(pool, tree.into(), 2).await.unwrap()), sorted[..2]);
    assert_eq!(
        names(transfer::files_of_transfers(pool, &[tree.into(), STRANGER.into()], 3).await.unwrap()),
        sorted[..3]
    );
    let entry = transfer::transfer_file(pool, tree.into(), "a/x").await.unwrap().unwrap();
    assert_eq!((entry.size, entry.sha256), (7, digest(7).to_string()));
    assert_eq!(transfer::transfer_file(pool, tree.into(), "x").await.unwrap(), None);
    world.servers.finish().await;
}

#[tokio::test]
async fn what_is_gone_is_found_by_the_number_that_it_had() {
    let world = World::start().await;
    let (job, [press, _]) = job(&world).await;
    world.fold().await;
    let pool = world.pool();
    assert_eq!(transfer::removed_job(pool, OWNER, 5).await.unwrap(), None);
    assert_eq!(transfer::existing_jobs(pool, &[5, 6]).await.unwrap(), [5]);
    assert_eq!(transfer::removed_agent(pool, press.number).await.unwrap(), None);
    world.writer.run::<Job>(job.id.0, JobCommand::Delete).await;
    world.writer.run::<Agent>(press.id.0, AgentCommand::Delete).await;
    world.fold().await;
    assert_eq!(transfer::removed_job(pool, OWNER, 5).await.unwrap(), Some(job.id));
    assert!(transfer::existing_jobs(pool, &[5]).await.unwrap().is_empty());
    assert_eq!(transfer::removed_job(pool, STRANGER.into(), 5).await.unwrap(), None);
    assert_eq!(transfer::removed_agent(pool, press.number).await.unwrap(), Some(press.id));
    world.servers.finish().await;
}

/// Names of the queries of `context`, from its source.
fn declared(file: &str) -> BTreeSet<String> {
    declared_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file))
}

/// The queries that the source file at `path` declares.
pub(crate) fn declared_in(path: &Path) -> BTreeSet<String> {
    let source = fs::read_to_string(path).unwrap();
    let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
    names.map(|name| name.split(['(', '<']).next().unwrap().to_owned()).collect()
}

#[test]
fn no_query_is_left_out_here() {
    let here = concat!(
        include_str!("queries.rs"),
        include_str!("queries/agent_requests.rs"),
        include_str!("queries/identity.rs")
    );
    for (file, context) in [
        ("identity/queries.rs", "identity"),
        ("transfer/queries/mod.rs", "transfer"),
        ("transfer/queries/agents.rs", "transfer"),
        ("transfer/queries/agent_requests.rs", "agent_requests"),
    ] {
        let left_out: Vec<_> = declared(file)
            .into_iter()
            .filter(|name| !here.contains(&format!("{context}::{name}(")))
            .collect();
        assert!(left_out.is_empty(), "run these queries of {context} too: {left_out:?}");
    }
}

#[tokio::test]
async fn rows_are_looked_up_by_key_for_many_at_once() {
    let world = World::start().await;
    let (source, destination) = (world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    let mut jobs = Vec::new();
    for number in 0..20 {
        jobs.push(world.writer.job(number, spec("nightly", source, destination)).await);
    }
    world.fold().await;
    let lookup = Lookup::<JobRow>::start(world.pool());
    let stranger = lookup.get(STRANGER);
    let found = join_all(jobs.iter().chain(&jobs).map(|job| lookup.get(job.id.0)));
    let (stranger, found) = tokio::join!(stranger, found);
    assert_eq!(stranger.unwrap(), None);
    let numbers: Vec<_> = found.into_iter().map(|row| row.unwrap().unwrap().number).collect();
    assert_eq!(numbers, (0..20).chain(0..20).collect::<Vec<_>>());
    world.servers.finish().await;
}

#[tokio::test]
async fn a_lookup_survives_the_loss_of_its_connection() {
    let world = World::start().await;
    let (source, destination) = (world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    let job = world.writer.job(7, spec("nightly", source, destination)).await;
    world.fold().await;
    let lookup = Lookup::<JobRow>::start(world.pool());
    assert_eq!(lookup.get(job.id.0).await.unwrap().unwrap().number, 7);
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE query LIKE 'SELECT * FROM read.jobs WHERE id = ANY%' AND pid <> pg_backend_pid()";
    sqlx::query(kill).execute(world.pool()).await.unwrap();
    let number =
        eventually_some(seconds(20), async || lookup.get(job.id.0).await.ok().flatten()).await.number;
    assert_eq!(number, 7);
    world.servers.finish().await;
}
