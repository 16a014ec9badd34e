//! Jobs: their input and their output.

use serde_json::{Value, json};

use uuid::Uuid;

use crate::harness::{World, eventually, seconds};

async fn two_agents(world: &World) -> (i64, i64) {
    (world.agent("one").await.id, world.agent("two").await.id)
}

#[tokio::test]
async fn a_job_shows_what_it_was_given_and_its_defaults() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    let least = json!({"name": " nightly ", "source_agent_id": one, "destination_agent_id": two,
        "source_path": "/in/", "destination_path": "/out", "unknown": true, "id": 77, "status": "inactive"});
    let answer = world.admin.post("/api/jobs", least).await;
    let job = answer.expect(201);
    let me = world.admin.get("/api/auth/user").await.expect(200);
    let expected = json!({"id": job["id"], "user_id": me["id"], "name": "nightly", "type": "push", "status": "active",
        "enabled": true, "source_agent_id": one, "destination_agent_id": two, "source_path": "/in/",
        "destination_path": "/out", "schedule": null, "timezone": "UTC",
        "retry": {"max_attempts": 3, "backoff_seconds": 5}, "overlap": "skip", "description": null, "last_run": null,
        "next_run": null, "last_transfer_id": null, "created_at": job["created_at"], "updated_at": job["updated_at"]});
    assert_eq!(job, expected);
    assert_eq!(answer.header("location"), Some(format!("/api/jobs/{}", job["id"]).as_str()));
    assert!(job["created_at"].as_str().unwrap().ends_with('Z'));
    let path = format!("/api/jobs/{}", job["id"]);
    let all = json!({"name": "x", "type": "pull", "source_agent_id": two, "destination_agent_id": one,
        "source_path": "C:\\ä", "destination_path": "b c", "schedule": "0 0 4 * * MON-FRI", "timezone": "Europe/Berlin",
        "enabled": false, "retry": {"max_attempts": 10, "backoff_seconds": 0}, "overlap": "queue", "description": "täglich"});
    let changed = world.admin.put(&path, all.clone()).await.expect(200);
    for (field, value) in all.as_object().unwrap() {
        assert_eq!(changed[field], *value, "{field}");
    }
    assert_eq!((&changed["status"], &changed["created_at"]), (&json!("paused"), &job["created_at"]));
    assert_eq!(world.admin.get(&path).await.expect(200), changed);
    let cleared = json!({"schedule": null, "description": null, "retry": {"max_attempts": 2}});
    let cleared = world.admin.put(&path, cleared).await.expect(200);
    assert_eq!((&cleared["schedule"], &cleared["description"]), (&Value::Null, &Value::Null));
    assert_eq!(cleared["retry"], json!({"max_attempts": 2, "backoff_seconds": 0}));
    world.admin.delete(&path).await.expect(204);
    world.admin.get(&path).await.error(404);
    world.admin.delete(&path).await.error(404);
    world.admin.post(&format!("{path}/run"), json!({})).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn the_jobs_of_a_deleted_user_end() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    let owner = world.user("leaver", "operator").await;
    let job = json!({"name": "j", "source_agent_id": one, "destination_agent_id": two, "source_path": "/a",
        "destination_path": "/b", "schedule": "0 0 4 * * *"});
    for client in [&owner, &owner, &world.admin] {
        client.post("/api/jobs", job.clone()).await.expect(201);
    }
    let id: Uuid = sqlx::query_scalar("SELECT id FROM read.users WHERE username = 'leaver'")
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    world.admin.delete(&format!("/api/v1/users/{id}")).await.expect(200);
    eventually(seconds(20), async || world.count_events("job_deleted").await == 2).await;
    let left = world.admin.get("/api/jobs").await.expect(200);
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    world.finish().await;
}

#[tokio::test]
async fn a_time_zone_is_kept_without_a_schedule() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    let job = |timezone: &str| {
        json!({"name": "j", "source_agent_id": one, "destination_agent_id": two, "source_path": "/a",
            "destination_path": "/b", "timezone": timezone})
    };
    let made = world.admin.post("/api/jobs", job("Europe/Berlin")).await.expect(201);
    assert_eq!((&made["timezone"], &made["schedule"]), (&json!("Europe/Berlin"), &Value::Null));
    let path = format!("/api/jobs/{}", made["id"]);
    // Later firings follow a new schedule, and the next run stays when the schedule is removed.
    let planned = world.admin.put(&path, json!({"schedule": "0 0 0 1 1 *"})).await.expect(200);
    assert!(planned["next_run"].as_str().unwrap().ends_with("-12-31T23:00:00Z"), "{planned}");
    let bare = world.admin.put(&path, json!({"schedule": null})).await.expect(200);
    assert_eq!((&bare["timezone"], &bare["next_run"]), (&json!("Europe/Berlin"), &Value::Null));
    assert_eq!(world.admin.get(&path).await.expect(200), bare);
    for wrong in ["Mars/Olympus", "", "+01:00"] {
        let error = world.admin.post("/api/jobs", job(wrong)).await.error(400);
        assert!(error.starts_with("timezone"), "{wrong}: {error}");
        let error = world.admin.put(&path, json!({ "timezone": wrong })).await.error(400);
        assert!(error.starts_with("timezone"), "{wrong}: {error}");
    }
    assert_eq!(world.admin.get(&path).await.expect(200), bare);
    world.finish().await;
}

#[tokio::test]
async fn five_fields_mean_second_zero_and_faults_are_named() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    let job = |schedule: &str, timezone: &str| {
        json!({"name": "j", "source_agent_id": one, "destination_agent_id": two, "source_path": "/a",
            "destination_path": "/b", "schedule": schedule, "timezone": timezone})
    };
    let five = world.admin.post("/api/jobs", job("30 4 * * *", "UTC")).await.expect(201);
    assert!(five["next_run"].as_str().unwrap().ends_with("T04:30:00Z"), "{five}");
    let none = world.admin.post("/api/jobs", job("", "UTC")).await.expect(201);
    assert_eq!((&none["schedule"], &none["next_run"]), (&Value::Null, &Value::Null));
    for (schedule, timezone, field) in [
        ("", "Mars/Olympus", "timezone"),
        ("every day", "UTC", "schedule"),
        ("0 60 * * * *", "UTC", "schedule"),
        ("0 0 0 30 2 *", "UTC", "schedule"),
        ("0 0 0 1 1 * 2030", "UTC", "schedule"),
        ("0 0 * * * *", "Nowhere", "timezone"),
    ] {
        let error = world.admin.post("/api/jobs", job(schedule, timezone)).await.error(400);
        assert!(error.starts_with(field), "{schedule} {timezone}: {error}");
    }
    // One rule for the number of fields, whatever the number.
    for (schedule, count) in [("every day", 2), ("* * * *", 4), ("0 0 0 1 1 * 2030", 7)] {
        let error = world.admin.post("/api/jobs", job(schedule, "UTC")).await.error(400);
        let rule = format!("schedule must have five fields, or six with seconds first, but has {count}");
        assert_eq!(error, rule, "{schedule}");
    }
    world.finish().await;
}

#[tokio::test]
async fn paths_are_kept_as_given_within_the_limits_of_file_systems() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    let job = |source: &str, destination: &str| {
        json!({"name": "j", "source_agent_id": one, "destination_agent_id": two, "source_path": source,
            "destination_path": destination})
    };
    let longest = format!("/{}", "x".repeat(255)).repeat(16);
    for (path, is_valid) in [
        (" a /b ", true),
        (longest.as_str(), true),
        (&format!("{longest}/"), false),
        (&"x".repeat(256), false),
    ] {
        for route in ["/api/jobs", "/api/transfers"] {
            for (source, destination) in [(path, "/b"), ("/a", path)] {
                let answer = world.admin.post(route, job(source, destination)).await;
                if is_valid {
                    let made = answer.expect(201);
                    assert_eq!(
                        (&made["source_path"], &made["destination_path"]),
                        (&json!(source), &json!(destination))
                    );
                } else {
                    assert!(answer.error(400).contains("bytes"), "{}", answer.text());
                }
            }
        }
    }
    let mut named = job("/a", "/b");
    named["filename"] = json!("x".repeat(256));
    assert!(world.admin.post("/api/transfers", named).await.error(400).contains("filename"));
    world.finish_with_mail().await;
}

#[tokio::test]
async fn lists_are_newest_first_and_filtered() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    for (name, kind, enabled, from) in
        [("alpha", "push", true, one), ("beta", "pull", false, two), ("gamma", "push", false, one)]
    {
        let job = json!({"name": name, "type": kind, "enabled": enabled, "source_agent_id": from,
            "destination_agent_id": from, "source_path": "/a", "destination_path": "/b"});
        world.admin.post("/api/jobs", job).await.expect(201);
    }
    let names = async |query: &str| {
        let listed = world.admin.get(&format!("/api/jobs{query}")).await.expect(200);
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["gamma", "beta", "alpha"]);
    assert_eq!(names("?status=paused").await, ["gamma", "beta"]);
    assert_eq!(names("?type=push&status=active").await, ["alpha"]);
    assert_eq!(names("?name=ET").await, ["beta"]);
    assert_eq!(names(&format!("?agent_id={two}")).await, ["beta"]);
    assert_eq!(names("?limit=1&offset=1").await, ["beta"]);
    world.finish().await;
}

#[tokio::test]
async fn a_transfer_takes_from_its_job_what_it_does_not_say() {
    let world = World::start().await;
    let (one, two) = two_agents(&world).await;
    let job = json!({"name": "j", "source_agent_id": one, "destination_agent_id": two, "source_path": "/a/f.txt",
        "destination_path": "/b"});
    let job = world.admin.post("/api/jobs", job).await.id();
    let transfer = world.admin.post("/api/transfers", json!({"job_id": job, "size": 5})).await;
    let made = transfer.expect(201);
    assert_eq!(transfer.header("location"), Some(format!("/api/transfers/{}", made["id"]).as_str()));
    assert_eq!(
        (&made["job_id"], &made["filename"], &made["size"]),
        (&json!(job), &json!("f.txt"), &json!(5))
    );
    assert_eq!((&made["source_agent_id"], &made["destination_path"]), (&json!(one), &json!("/b")));
    let own = json!({"job_id": job, "source_agent_id": two, "source_path": "/c", "filename": "d"});
    let own = world.admin.post("/api/transfers", own).await.expect(201);
    assert_eq!(
        (&own["source_agent_id"], &own["source_path"], &own["filename"]),
        (&json!(two), &json!("/c"), &json!("d"))
    );
    world.admin.post("/api/transfers", json!({"job_id": 999})).await.error(404);
    let error = world.admin.post("/api/transfers", json!({"source_agent_id": one})).await.error(400);
    assert!(error.contains("destination_agent_id"), "{error}");
    let listed =
        world.admin.get(&format!("/api/transfers?job_id={job}&status=pending&name=D")).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let later = world.admin.get("/api/transfers?from=2999-01-01T00:00:00Z").await.expect(200);
    assert_eq!(later, json!([]));
    world.admin.get("/api/transfers?from=yesterday").await.error(400);
    world.finish_with_mail().await;
}
