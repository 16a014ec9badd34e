//! Behaviour of all routes: headers, paths, versions, pages, reads after writes.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::harness::World;

/// Tables and columns of the database that hold `secret` in any text, JSON or bytes.
pub async fn places_of(world: &World, secret: &str) -> Vec<String> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT table_schema::text, table_name::text, column_name::text FROM information_schema.columns
          WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
            AND data_type IN ('text', 'character varying', 'json', 'jsonb', 'bytea', 'ARRAY')",
    )
    .fetch_all(&world.servers.pool)
    .await
    .unwrap();
    assert!(columns.len() > 40);
    let mut found = Vec::new();
    for (schema, table, column) in columns {
        // Bytes are compared as hex, everything else as text.
        let statement = format!(
            "SELECT EXISTS (SELECT FROM {schema}.{table} WHERE position($1 IN {column}::text) > 0
                OR position($2 IN {column}::text) > 0)"
        );
        let holds: bool = sqlx::query_scalar(&statement)
            .bind(secret)
            .bind(hex::encode(secret))
            .fetch_one(&world.servers.pool)
            .await
            .unwrap();
        if holds {
            found.push(format!("{schema}.{table}.{column}"));
        }
    }
    found
}

#[tokio::test]
async fn request_ids_are_echoed_when_sane_and_kept_in_the_log() {
    let world = World::start().await;
    let with_id = |id: &str| world.admin.request(Method::GET, "/api/info").header("x-request-id", id);
    let echoed = world.admin.send(with_id("my-request.1:x_2")).await;
    assert_eq!(echoed.header("x-request-id"), Some("my-request.1:x_2"));
    for odd in ["a b", "<script>", &"x".repeat(129)] {
        let made = world.admin.send(with_id(odd)).await;
        assert_ne!(made.header("x-request-id"), Some(odd));
    }
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = world.admin.request(Method::POST, "/api/agents").header("x-request-id", "traced");
    world.admin.send(request.header("traceparent", trace).json(&json!({"name": "a"}))).await.expect(201);
    let metadata: serde_json::Value =
        sqlx::query_scalar("SELECT metadata FROM events WHERE event_type = 'agent_created'")
            .fetch_one(&world.servers.pool)
            .await
            .unwrap();
    let text = metadata.to_string();
    assert!(text.contains("\"traced\"") && text.contains(trace), "{text}");
    world.finish().await;
}

#[tokio::test]
async fn paths_are_read_generously() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    for path in [
        "/api/agents",
        "/api/agents/",
        "/api/api/agents",
        "/api/api/agents/",
        "/api/agents?limit=5",
        "/api/agents/?limit=5",
    ] {
        let listed = world.admin.get(path).await;
        assert_eq!(listed.expect(200).as_array().unwrap().len(), 1, "{path}");
    }
    world.admin.get(&format!("/api/api/agents/{}/", agent.id)).await.expect(200);
    world.anonymous().get("/api/api/auth/user").await.error(401);
    let head = world.admin.send(world.admin.request(Method::HEAD, "/api/agents")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    world.finish().await;
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let world = World::start().await;
    for (client, path) in [
        (&world.admin, "/api/agents"),
        (&world.anonymous(), "/api/agents"),
        (&world.anonymous(), "/nothing"),
        (&world.anonymous(), "/api/health"),
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'self'"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
        assert_eq!(answer.header("server"), None, "{path}");
    }
    world.finish().await;
}

#[tokio::test]
async fn only_configured_origins_may_call_from_a_browser() {
    let world =
        World::with(|config| config.server.cors_origins = vec!["https://app.example".to_owned()]).await;
    let from = |origin: &str| world.admin.request(Method::GET, "/api/agents").header("origin", origin);
    let allowed = world.admin.send(from("https://app.example")).await;
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    let refused = world.admin.send(from("https://evil.example")).await;
    assert_eq!(refused.header("access-control-allow-origin"), None);
    world.finish().await;
}

#[tokio::test]
async fn a_page_says_how_much_there_is() {
    let world = World::start().await;
    for name in ["c", "a", "b", "d 100%", "d_x"] {
        world.admin.post("/api/agents", json!({ "name": name })).await.expect(201);
    }
    let names = async |query: &str| {
        let listed = world.admin.get(&format!("/api/agents{query}")).await;
        let rows = listed.expect(200);
        let names: Vec<_> =
            rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        (names.join(","), listed.header("x-total-count").unwrap().to_owned())
    };
    let expected = |names: &str, total: &str| (names.to_owned(), total.to_owned());
    assert_eq!(names("").await, expected("a,b,c,d 100%,d_x", "5"));
    assert_eq!(names("?limit=2&offset=1").await, expected("b,c", "5"));
    assert_eq!(names("?offset=9").await, expected("", "5"));
    assert_eq!(names("?name=D").await, expected("d 100%,d_x", "2"));
    assert_eq!(names("?name=_").await, expected("d_x", "1"));
    assert_eq!(names("?name=0%25").await, expected("d 100%", "1"));
    assert_eq!(names("?status=online").await, expected("", "0"));
    assert_eq!(names("?type=server&unknown=1").await, expected("a,b,c,d 100%,d_x", "5"));
    for wrong in ["limit=0", "limit=501", "limit=-1", "offset=-1", "limit=x"] {
        for list in ["agents", "jobs", "transfers", "tokens"] {
            world.admin.get(&format!("/api/{list}?{wrong}")).await.error(400);
        }
    }
    // An unknown word would find nothing, which looks as if there were nothing.
    for list in ["agents", "jobs", "transfers"] {
        for field in ["status", "type"] {
            let refused = world.admin.get(&format!("/api/{list}?{field}=nothing")).await.error(400);
            assert!(refused.contains(&format!("{field} must be one of")), "{refused}");
        }
    }
    for status in ["pending", "running", "completed", "failed", "cancelled"] {
        let path = format!("/api/transfers?type=pull&status={status}");
        assert_eq!(world.admin.get(&path).await.expect(200), json!([]));
    }
    world.admin.get("/api/v1/events?type=nothing").await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn a_version_that_is_insisted_on_must_be_the_newest() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let path = format!("/api/agents/{}", agent.id);
    let job = json!({"name": "j", "source_agent_id": agent.id, "destination_agent_id": agent.id,
        "source_path": "/a", "destination_path": "/b"});
    let made = world.admin.post("/api/jobs", job).await;
    let job = format!("/api/jobs/{}", made.id());
    for path in [&path, &job] {
        let tag = world.admin.get(path).await.header("etag").unwrap().to_owned();
        let put = |tag: &str, name: &str| {
            let request = world.admin.request(Method::PUT, path).header("if-match", tag);
            world.admin.send(request.json(&json!({ "name": name })))
        };
        let changed = put(&tag, "changed").await;
        assert_eq!(changed.expect(200)["name"], "changed");
        let newer = changed.header("etag").unwrap().to_owned();
        assert_ne!(newer, tag);
        for stale in [tag.as_str(), "\"nonsense\"", "\"999\"", "garbage", &format!("{tag}, \"999\"")] {
            put(stale, "lost").await.error(412);
        }
        assert_eq!(world.admin.get(path).await.expect(200)["name"], "changed");
        put(&format!("{tag}, {newer}"), "one of them").await.expect(200);
        put("*", "any").await.expect(200);
        let delete = world.admin.request(Method::DELETE, path).header("if-match", &tag);
        world.admin.send(delete).await.error(412);
    }
    let tag = world.admin.get(&job).await.header("etag").unwrap().to_owned();
    let delete = world.admin.request(Method::DELETE, &job).header("if-match", format!("\"1\", {tag}"));
    world.admin.send(delete).await.expect(204);
    world.finish().await;
}

#[tokio::test]
async fn partial_changes_at_once_lose_nothing() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let agent = world.agent("a").await;
    let job = json!({"name": "j", "source_agent_id": agent.id, "destination_agent_id": agent.id,
        "source_path": "/a", "destination_path": "/b"});
    let path = format!("/api/jobs/{}", world.admin.post("/api/jobs", job).await.id());
    for round in 0..5 {
        let changes = [
            json!({"name": format!("name {round}")}),
            json!({"source_path": format!("/a/{round}")}),
            json!({"description": format!("text {round}")}),
            json!({"schedule": format!("{round} 0 0 1 1 *")}),
        ];
        let there = world.admin.at(&other);
        let clients = [&world.admin, &there];
        let puts =
            changes.iter().enumerate().map(|(index, change)| clients[index % 2].put(&path, change.clone()));
        for answer in join_all(puts).await {
            answer.expect(200);
        }
        let shown = world.admin.get(&path).await.expect(200);
        for change in changes {
            for (field, value) in change.as_object().unwrap() {
                assert_eq!(shown[field], *value, "{shown}");
            }
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn what_one_gateway_wrote_another_one_shows_at_once() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let mut late = 0;
    for round in 0..20 {
        let made = world.admin.post("/api/agents", json!({"name": format!("agent {round:02}")})).await;
        late += usize::from(made.header("consistency").is_some());
        let id = made.id();
        let listed = there.get("/api/agents").await;
        assert_eq!(listed.header("x-total-count"), Some((round + 1).to_string().as_str()));
        let path = format!("/api/agents/{id}");
        there.put(&path, json!({"description": "seen"})).await.expect(200);
        assert_eq!(world.admin.get(&path).await.expect(200)["description"], "seen");
    }
    let path = format!("/api/agents/{}", world.admin.post("/api/agents", json!({"name": "x"})).await.id());
    there.delete(&path).await.expect(204);
    world.admin.get(&path).await.error(404);
    // A busy machine may take longer than an answer waits, but not again and again.
    assert!(late < 5, "{late} answers did not wait");
    world.finish().await;
}
