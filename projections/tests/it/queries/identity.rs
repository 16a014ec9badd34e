//! Queries of users, sessions and API tokens.

use chrono::{DateTime, Utc};
use signalbox_domain::{
    identity::{ApiToken, ApiTokenCommand, NewApiToken, Role, Session, SessionCommand},
    kernel::{SessionId, UserId},
};
use signalbox_projections::{
    Listed, Page,
    identity::{
        UserRow,
        queries::{self as identity, ApiTokenFilter, ListedApiToken, UserFilter},
    },
};

use super::{ALL, STRANGER};
use crate::world::{World, at, digest};

#[tokio::test]
async fn users_are_found_by_name_and_address_in_any_case() {
    let world = World::start().await;
    let ada = world.writer.user(1, "Ada", Role::Operator).await;
    world.go_to(1);
    let bob = world.writer.user(2, "bob", Role::Viewer).await;
    world.fold().await;
    let pool = world.pool();
    for login in ["ada", "ADA", "ADA@example.ORG"] {
        let named = identity::users_by_login(pool, login).await.unwrap();
        assert_eq!(named.iter().map(|user| user.id.0).collect::<Vec<_>>(), [ada], "{login}");
    }
    assert!(identity::users_by_login(pool, "eve").await.unwrap().is_empty());
    let list = async |limit, offset| {
        identity::users(pool, &UserFilter::default(), UserRow::default_order(), Page { limit, offset })
            .await
            .unwrap()
    };
    let (page, total) = list(10, 0).await;
    assert_eq!(page.iter().map(|user| user.id.0).collect::<Vec<_>>(), [bob, ada], "newest first");
    assert_eq!((list(1, 1).await.0[0].id.0, total), (ada, 2));
    assert!(identity::has_users(pool).await.unwrap());
    assert_eq!(identity::user_by_email(pool, "ADA@example.ORG").await.unwrap().unwrap().id.0, ada);
    assert_eq!(identity::user_by_email(pool, "ada").await.unwrap(), None);
    assert_eq!(identity::user_by_identity(pool, "https://id.example.org", "ada").await.unwrap(), None);
    assert!(!identity::is_removed_identity(pool, "https://id.example.org", "ada").await.unwrap());
    assert_eq!(identity::user(pool, STRANGER.into()).await.unwrap(), None);
    let users = [UserId(ada), STRANGER.into()];
    assert_eq!(identity::missing_users(pool, &users).await.unwrap(), [STRANGER.into()]);
    let filter = UserFilter { role: Some("viewer"), name: Some("BOB@ex".to_owned()) };
    let (found, total) = identity::users(pool, &filter, UserRow::default_order(), ALL).await.unwrap();
    assert_eq!((found.len(), found[0].id, total), (1, UserId(bob), 1));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_live_session_names_its_user() {
    let world = World::start().await;
    let user = world.writer.user(7, "ada", Role::Admin).await;
    let session = world.clock.new_id();
    let start = SessionCommand::Start { user: UserId(user), expires_at: at(60) };
    world.writer.run::<Session>(session, start).await;
    world.fold().await;
    let live = identity::live_session(world.pool(), session.into(), at(59)).await.unwrap().unwrap();
    assert_eq!((live.user_id.0, live.number, live.role.as_str()), (user, 7, "admin"));
    assert_eq!(identity::live_session(world.pool(), session.into(), at(60)).await.unwrap(), None);
    let live_of =
        async |user, second| identity::live_sessions_of(world.pool(), user, at(second)).await.unwrap();
    assert_eq!(live_of(live.user_id, 59).await, [SessionId(session)]);
    assert!(live_of(live.user_id, 60).await.is_empty() && live_of(STRANGER.into(), 59).await.is_empty());
    world.servers.finish().await;
}

#[tokio::test]
async fn a_live_api_token_names_its_user() {
    let world = World::start().await;
    let user = world.writer.user(7, "ada", Role::Admin).await;
    let (token, user_id) = (world.clock.new_id(), UserId(user));
    let new = NewApiToken {
        user: user_id,
        name: "Press".to_owned(),
        secret_sha256: digest(1),
        expires_at: Some(at(60)),
        controller: None,
    };
    world.writer.run::<ApiToken>(token, ApiTokenCommand::Create(new)).await;
    world.fold().await;
    let (pool, hash) = (world.pool(), digest(1));
    let live = identity::live_api_token(pool, hash.as_str(), at(59)).await.unwrap().unwrap();
    assert_eq!((live.token_id, live.user_id.0, live.number, live.role.as_str()), (token, user, 7, "admin"));
    assert_eq!(identity::live_api_token(pool, hash.as_str(), at(60)).await.unwrap(), None);
    // This distinguishes expired tokens from revoked ones.
    let hashes = async |time| identity::api_token_hashes(pool, time).await.unwrap();
    assert_eq!(hashes(at(59)).await, [(token, hash.to_string())]);
    assert_eq!(hashes(at(60)).await, []);
    assert_eq!(identity::api_token_expiry(pool, hash.as_str()).await.unwrap(), Some(at(60)));
    assert_eq!(identity::api_token_expiry(pool, digest(2).as_str()).await.unwrap(), None);
    assert_eq!(identity::api_token(pool, token).await.unwrap().unwrap().name, "Press");
    assert_eq!(identity::api_token(pool, STRANGER).await.unwrap(), None);
    // Of several gateways, one may note its uses late.
    for used in [30, 20] {
        identity::note_token_uses(pool, &[token], &[at(used)]).await.unwrap();
    }
    let last_used = "SELECT last_used FROM ops.token_uses WHERE token_id = $1";
    let last_used: DateTime<Utc> = sqlx::query_scalar(last_used).bind(token).fetch_one(pool).await.unwrap();
    assert_eq!(last_used, at(30));
    let names = identity::token_names(pool, [token, STRANGER]).await.unwrap();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [(token, "Press".to_owned())]);
    for (user, name, expected) in
        [(None, None, 1), (Some(user), Some("PRE"), 1), (Some(STRANGER), None, 0), (None, Some("x"), 0)]
    {
        let filter = ApiTokenFilter { user: user.map(UserId), name: name.map(str::to_owned) };
        let (rows, total) =
            identity::api_tokens(pool, &filter, ListedApiToken::default_order(), ALL).await.unwrap();
        assert_eq!((rows.len() as i64, total), (expected, expected), "{filter:?}");
    }
    world.servers.finish().await;
}
