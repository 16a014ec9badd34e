//! Users, as admins see them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{ADMIN, PASSWORD, World};

async fn create(world: &World, name: &str, role: &str) -> Value {
    let user =
        json!({"email": format!("{name}@example.org"), "username": name, "password": PASSWORD, "role": role});
    world.admin.post("/api/v1/users", user).await.expect(201)
}

fn path(user: &Value) -> String {
    format!("/api/v1/users/{}", user["public_id"].as_str().unwrap())
}

async fn admin_path(world: &World) -> String {
    path(&world.admin.get("/api/v1/auth/me").await.expect(200))
}

#[tokio::test]
async fn a_user_is_made_shown_changed_and_deleted() {
    let world = World::start().await;
    let user = json!({"email": " New@Example.org ", "username": " new ", "password": PASSWORD});
    let answer = world.admin.post("/api/v1/users", user).await;
    let made = answer.expect(201);
    assert_eq!(
        (&made["status"], &made["role"], &made["admin"]),
        (&json!("success"), &json!("operator"), &json!(false))
    );
    assert_eq!((&made["email"], &made["username"]), (&json!("New@Example.org"), &json!("new")));
    assert!(made["registered_on"].as_str().unwrap().starts_with(made["created_on"].as_str().unwrap()));
    assert_eq!(answer.header("location"), Some(path(&made).as_str()));
    let shown = world.admin.get(&path(&made)).await;
    assert_eq!(shown.header("etag"), Some("\"1\""));
    let changed =
        world.admin.put(&path(&made), json!({"role": "viewer", "email": "x@example.org"})).await.expect(200);
    assert_eq!(
        (&changed["role"], &changed["email"], &changed["username"]),
        (&json!("viewer"), &json!("x@example.org"), &json!("new"))
    );
    let alias = world.admin.put(&path(&made), json!({"role": "user"})).await.expect(200);
    assert_eq!(alias["role"], "operator");
    let stale = world
        .admin
        .request(Method::PUT, &path(&made))
        .header("if-match", "\"1\"")
        .json(&json!({"role": "viewer"}));
    world.admin.send(stale).await.error(412);
    let stale = world.admin.request(Method::DELETE, &path(&made)).header("if-match", "\"1\"");
    world.admin.send(stale).await.error(412);
    world.admin.delete(&path(&made)).await.expect(200);
    world.admin.get(&path(&made)).await.error(404);
    world.admin.delete(&path(&made)).await.error(404);
    // Address and name are free again.
    create(&world, "new", "viewer").await;
    world.finish().await;
}

#[tokio::test]
async fn addresses_and_names_are_unique_in_any_case() {
    let world = World::start().await;
    let (one, other) = (create(&world, "one", "viewer").await, create(&world, "other", "viewer").await);
    let before = world.count_all_events().await;
    let taken =
        |email: &str, username: &str| json!({"email": email, "username": username, "password": PASSWORD});
    world.admin.post("/api/v1/users", taken("ONE@example.org", "free")).await.error(409);
    world.admin.post("/api/v1/users", taken("free@example.org", "ONE")).await.error(409);
    world.admin.put(&path(&other), json!({"email": "One@example.org"})).await.error(409);
    world.admin.put(&path(&other), json!({"username": "One"})).await.error(409);
    assert_eq!(world.count_all_events().await, before);
    // The own name in another case does not conflict.
    let renamed = world.admin.put(&path(&one), json!({"username": "ONE"})).await.expect(200);
    assert_eq!(renamed["username"], "ONE");
    world.finish().await;
}

#[tokio::test]
async fn of_many_equal_users_made_at_once_one_is_made() {
    let world = World::start().await;
    let user = json!({"email": "same@example.org", "username": "same", "password": PASSWORD});
    let made =
        futures::future::join_all((0..6).map(|_| world.admin.post("/api/v1/users", user.clone()))).await;
    let mut statuses: Vec<_> = made.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
    world.finish().await;
}

#[tokio::test]
async fn the_last_admin_stays() {
    let world = World::start().await;
    let first = admin_path(&world).await;
    let before = world.count_all_events().await;
    world.admin.delete(&first).await.error(409);
    world.admin.put(&first, json!({"role": "operator"})).await.error(409);
    assert_eq!(world.count_all_events().await, before);
    world.finish().await;
}

#[tokio::test]
async fn of_two_last_admins_that_go_at_once_one_stays() {
    let world = World::start().await;
    for round in 0..4 {
        let second = create(&world, &format!("second{round}"), "admin").await;
        let client = world.anonymous().log_in(&format!("second{round}"), PASSWORD).await;
        let first = admin_path(&world).await;
        let (second, demote) = (path(&second), json!({"role": "operator"}));
        // Each takes the other's rights away.
        let (one, other) = tokio::join!(world.admin.put(&second, demote.clone()), client.put(&first, demote));
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses[0], 200, "{statuses:?}");
        assert!([409, 403].contains(&statuses[1]), "{statuses:?}");
        let admins: i64 = sqlx::query_scalar("SELECT count(*) FROM read.users WHERE role = 'admin'")
            .fetch_one(&world.servers.pool)
            .await
            .unwrap();
        assert_eq!(admins, 1);
        // The test continues with the first one as admin.
        if other.status == 200 {
            let fresh = world.anonymous().log_in(&format!("second{round}"), PASSWORD).await;
            fresh.put(&first, json!({"role": "admin"})).await.expect(200);
            crate::harness::eventually(crate::harness::seconds(5), async || {
                world.admin.get("/api/v1/users").await.status == 200
            })
            .await;
            world.admin.put(&second, json!({"role": "operator"})).await.expect(200);
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn the_list_has_pages_newest_first() {
    let world = World::start().await;
    for index in 0..4 {
        create(&world, &format!("user{index}"), "viewer").await;
    }
    let page = |number, size| format!("/api/v1/users?page={number}&page_size={size}");
    let first = world.admin.get(&page(1, 2)).await.expect(200);
    let names = |page: &Value| -> Vec<String> {
        page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|user| user["username"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!((&first["page"], &first["page_size"], &first["total"]), (&json!(1), &json!(2), &json!(5)));
    assert_eq!(names(&first), ["user3", "user2"]);
    assert_eq!(names(&world.admin.get(&page(3, 2)).await.expect(200)), ["admin"]);
    assert!(names(&world.admin.get(&page(4, 2)).await.expect(200)).is_empty());
    let whole = world.admin.get("/api/v1/users").await.expect(200);
    assert_eq!((&whole["page_size"], names(&whole).len()), (&json!(25), 5));
    let found =
        async |query: &str| names(&world.admin.get(&format!("/api/v1/users?{query}")).await.expect(200));
    assert_eq!(found("role=admin").await, ["admin"]);
    assert_eq!(found("role=viewer&name=R2").await, ["user2"]);
    assert_eq!(found("name=admin%40EX").await, ["admin"], "by the address too");
    assert!(found("role=operator").await.is_empty());
    for wrong in ["page=0", "page_size=0", "page_size=101", "page=x", "page=-1", "role=king"] {
        world.admin.get(&format!("/api/v1/users?{wrong}")).await.error(422);
    }
    assert_eq!(whole["data"][4]["email"], ADMIN);
    world.finish().await;
}
