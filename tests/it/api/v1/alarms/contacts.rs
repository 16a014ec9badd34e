//! Contacts, and what reaches them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{rule, until};
use crate::{
    api::v1::{
        datapoints::event,
        rules::{self, above_10, send},
    },
    harness::{MailServer, Reaction, Receiver, World, eventually, eventually_some, seconds},
};

pub const CONTACTS: &str = "/api/v1/contacts";

pub fn path(contact: &Value) -> String {
    format!("{CONTACTS}/{}", contact["public_id"].as_str().unwrap())
}

pub fn by_mail(name: &str) -> Value {
    json!({"name": name, "kind": "email", "address": format!("{name}@example.org")})
}

pub async fn create(world: &World, contact: Value) -> Value {
    world.admin.post(CONTACTS, contact).await.expect(201)
}

/// A service that sends mails by `server`.
pub async fn mailing(server: &MailServer) -> World {
    let address = server.address;
    World::with(move |config| {
        config.mail.server = address.ip().to_string();
        config.mail.port = address.port();
        config.mail.security = signalbox_config::MailSecurity::None;
        config.mail.sender = "Signalbox <alarms@plant.example>".to_owned();
    })
    .await
}

/// The messages to `contact`, newest first.
pub async fn messages(world: &World, contact: &Value) -> Vec<Value> {
    let page = world.admin.get(&format!("{}/messages", path(contact))).await.expect(200);
    page["data"].as_array().unwrap().clone()
}

/// Waits until the newest message to `contact` has `status`.
async fn until_newest(world: &World, contact: &Value, status: &str) -> Value {
    eventually_some(seconds(30), async || {
        messages(world, contact).await.into_iter().next().filter(|newest| newest["status"] == status)
    })
    .await
}

#[tokio::test]
async fn a_contact_is_made_shown_changed_and_deleted() {
    let world = World::start().await;
    let quiet = json!({"from": "22:00", "to": "06:30", "timezone": "Europe/Berlin"});
    let mut new = by_mail("day");
    new["quiet_hours"] = quiet.clone();
    let made = create(&world, new).await;
    assert_eq!((&made["address"], &made["quiet_hours"]), (&json!("day@example.org"), &quiet));
    let path = path(&made);
    let changed = world.admin.put(&path, json!({"name": "night", "quiet_hours": null})).await.expect(200);
    assert_eq!((&changed["name"], &changed["quiet_hours"]), (&json!("night"), &json!(null)));
    assert_eq!(changed["address"], "day@example.org", "an absent field stays");
    // Another kind is another contact.
    world.admin.put(&path, json!({"kind": "email", "name": "night"})).await.expect(200);
    let refused = world.admin.put(&path, json!({"kind": "webhook", "name": "hook"})).await.expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/kind", "{refused}");
    assert_eq!(world.admin.get(&path).await.expect(200)["name"], "night");
    let before = world.admin.get(&format!("{path}?at=0")).await;
    assert_eq!(before.status, 404);
    world.admin.post(CONTACTS, by_mail("night")).await.error(409);
    let page = world.admin.get(&format!("{CONTACTS}?name=NIG&kind=email")).await.expect(200);
    assert_eq!(page["total"], 1);
    world.admin.delete(&path).await.expect(200);
    world.admin.get(&path).await.error(404);
    create(&world, by_mail("night")).await;
    world.finish().await;
}

#[tokio::test]
async fn contacts_that_break_a_rule_are_refused_by_their_field() {
    let world = World::start().await;
    for (contact, field) in [
        (json!({"name": "a", "kind": "email"}), "address"),
        (json!({"name": "a", "kind": "email", "address": "Ops <ops@example.org>"}), "address"),
        (json!({"name": "a", "kind": "email", "address": "a@b.org", "url": "https://b.org"}), "url"),
        (json!({"name": "a", "kind": "chat", "url": "https://b.org"}), "format"),
        (json!({"name": "a", "kind": "chat", "format": "teams"}), "url"),
        (json!({"name": "a", "kind": "chat", "format": "irc", "url": "https://b.org"}), "format"),
        (json!({"name": "a", "kind": "webhook", "url": "ftp://b.org"}), "url"),
        (json!({"name": "a", "kind": "webhook", "url": "https://b.org", "secret": "a\0b"}), "secret"),
        (json!({"name": "", "kind": "webhook", "url": "https://b.org"}), "name"),
        (json!({"name": "a", "kind": "pager", "address": "a@b.org"}), "kind"),
    ] {
        let message = world.admin.post(CONTACTS, contact.clone()).await.error(422);
        assert!(message.contains(field), "{contact}: {message}");
    }
    for hours in [
        json!({"from": "22:00", "to": "22:00", "timezone": "UTC"}),
        json!({"from": "22:00", "to": "6", "timezone": "UTC"}),
        json!({"from": "22:00", "to": "06:00", "timezone": "Mars"}),
    ] {
        let mut contact = by_mail("a");
        contact["quiet_hours"] = hours;
        let message = world.admin.post(CONTACTS, contact).await.error(422);
        assert!(message.contains("quiet_hours"), "{message}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_contact_that_rules_name_is_deleted_after_them() {
    let world = World::start().await;
    let channel = event(&world, "boiler").await;
    let (day, boss) = (create(&world, by_mail("day")).await, create(&world, by_mail("boss")).await);
    let mut hot = above_10("hot", &channel);
    hot["contact_ids"] = json!([day["public_id"]]);
    let hot = rules::create(&world, hot).await;
    let mut late = above_10("late", &channel);
    late["contact_ids"] = json!([day["public_id"]]);
    late["escalate_seconds"] = json!(900);
    late["escalation_contact_ids"] = json!([boss["public_id"]]);
    let late = rules::create(&world, late).await;
    let conflicts = async |contact: &Value| {
        let problem = world.admin.delete(&path(contact)).await.expect(409);
        assert_eq!(problem["code"], "contact_in_use");
        let named = problem["conflicts"].as_array().unwrap().iter();
        let named: Vec<_> = named.map(|rule| (rule["public_id"].clone(), rule["name"].clone())).collect();
        for (_, name) in &named {
            assert!(problem["detail"].as_str().unwrap().contains(name.as_str().unwrap()), "{problem}");
        }
        named
    };
    let of = |rule: &Value| (rule["public_id"].clone(), rule["name"].clone());
    assert_eq!(conflicts(&day).await, [of(&hot), of(&late)]);
    assert_eq!(conflicts(&boss).await, [of(&late)]);
    world.admin.get(&path(&boss)).await.expect(200);
    // A rule lets a contact go when it is changed, loses its alarm, or is deleted.
    world.admin.put(&rules::path(&hot), json!({"contact_ids": []})).await.expect(200);
    assert_eq!(conflicts(&day).await, [of(&late)]);
    world.admin.put(&rules::path(&late), json!({"alarm": false, "escalate_seconds": null, "contact_ids": null, "escalation_contact_ids": null})).await.expect(200);
    world.admin.delete(&path(&day)).await.expect(200);
    world.admin.put(&rules::path(&hot), json!({"contact_ids": [boss["public_id"]]})).await.expect(200);
    assert_eq!(conflicts(&boss).await, [of(&hot)]);
    world.admin.delete(&rules::path(&hot)).await.expect(200);
    world.admin.delete(&path(&boss)).await.expect(200);
    world.finish().await;
}

/// A process of the release before carries out commands, too, while a release is rolled out: it neither takes nor releases claims.
#[tokio::test]
async fn a_contact_is_deleted_although_a_rule_has_left_its_claim() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    let channel = event(&world, "boiler").await;
    let (day, night) = (create(&world, by_mail("day")).await, create(&world, by_mail("night")).await);
    let mut hot = above_10("hot", &channel);
    hot["contact_ids"] = json!([day["public_id"], night["public_id"]]);
    let hot = rules::create(&world, hot).await;
    let id = |made: &Value| made["public_id"].as_str().unwrap().to_owned();
    let claims = async |contact: &Value| -> i64 {
        let claims = sqlx::query_scalar("SELECT count(*) FROM claims WHERE kind = $1 AND owner = $2");
        let kind = format!("contact.rules:{}", id(contact));
        claims.bind(kind).bind(id(&hot)).fetch_one(pool).await.unwrap()
    };
    let stale = async |contact: &Value| {
        sqlx::query("INSERT INTO claims (kind, key, owner) VALUES ($1, $2, $2)")
            .bind(format!("contact.rules:{}", id(contact)))
            .bind(id(&hot))
            .execute(pool)
            .await
            .unwrap();
    };
    // Made before: the next change takes the claims.
    sqlx::query("DELETE FROM claims WHERE kind LIKE 'contact.rules:%'").execute(pool).await.unwrap();
    world.admin.put(&rules::path(&hot), json!({"threshold": 11})).await.expect(200);
    assert_eq!((claims(&day).await, claims(&night).await), (1, 1));
    // Changed without a release.
    world.admin.put(&rules::path(&hot), json!({"contact_ids": [night["public_id"]]})).await.expect(200);
    stale(&day).await;
    world.admin.delete(&path(&day)).await.expect(200);
    assert_eq!((claims(&day).await, claims(&night).await), (0, 1));
    assert_eq!(world.admin.delete(&path(&night)).await.expect(409)["code"], "contact_in_use");
    // Deleted without a release.
    world.admin.delete(&rules::path(&hot)).await.expect(200);
    stale(&night).await;
    world.admin.delete(&path(&night)).await.expect(200);
    // A rule that names it, and that no read model shows yet, holds it.
    let boss = create(&world, by_mail("boss")).await;
    let mut held = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT FROM read.checkpoints FOR UPDATE").execute(&mut *held).await.unwrap();
    let mut late = above_10("late", &channel);
    late["contact_ids"] = json!([boss["public_id"]]);
    let admin = world.at_one_gateway();
    admin.post(rules::RULES, late).await.expect(201);
    assert_eq!(admin.delete(&path(&boss)).await.expect(409)["code"], "contact_in_use");
    held.rollback().await.unwrap();
    world.finish().await;
}

#[tokio::test]
async fn rules_say_which_of_their_contacts_does_not_exist() {
    let world = World::start().await;
    let channel = event(&world, "boiler").await;
    let day = create(&world, by_mail("day")).await;
    let mut rule = above_10("hot", &channel);
    rule["contact_ids"] = json!([day["public_id"]]);
    let made = rules::create(&world, rule.clone()).await;
    rule["name"] = json!("hotter");
    for stranger in ["unknown", "01890000-0000-7000-8000-000000000000"] {
        let named = json!([day["public_id"], stranger]);
        for (field, place) in
            [("contact_ids", "/contact_ids/1"), ("escalation_contact_ids", "/escalation_contact_ids/1")]
        {
            let mut changes = json!({"escalate_seconds": 900, "escalation_contact_ids": [day["public_id"]]});
            changes[field] = named.clone();
            let mut new = rule.clone();
            new.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            for refused in [
                world.admin.post(rules::RULES, new).await,
                world.admin.put(&rules::path(&made), changes).await,
            ] {
                let problem = refused.expect(404);
                assert_eq!(problem["errors"][0]["pointer"], place, "{problem}");
                assert!(problem["detail"].as_str().unwrap().contains(field), "{problem}");
            }
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn contacts_that_are_not_reached_are_listed_by_a_filter() {
    let (server, hook) = (MailServer::start().await, Receiver::lenient().await);
    let world = mailing(&server).await;
    let gone = create(&world, by_mail("gone")).await;
    let reached = create(&world, json!({"name": "hook", "kind": "webhook", "url": hook.url()})).await;
    let new = create(&world, by_mail("new")).await;
    server.react(Reaction::Refuse("550 no such user"));
    for contact in [&gone, &reached] {
        world.admin.post(&format!("{}/test", path(contact)), json!({})).await.expect(201);
    }
    until_newest(&world, &gone, "dead_letter").await;
    until_newest(&world, &reached, "delivered").await;
    let listed = async |query: &str| {
        let page = world.admin.get(&format!("{CONTACTS}?{query}")).await.expect(200);
        let listed = page["data"].as_array().unwrap().iter();
        (page["total"].clone(), listed.map(|contact| contact["name"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(listed("failing=true&page_size=1").await, (json!(1), vec![gone["name"].clone()]));
    let others = vec![new["name"].clone(), reached["name"].clone()];
    assert_eq!(listed("failing=false").await, (json!(2), others));
    // Until the next message was attempted, nothing is known of it.
    let pending = "INSERT INTO read.deliveries SELECT (jsonb_populate_record(d, jsonb_build_object(
            'id', gen_random_uuid(), 'status', 'pending', 'created_at', now()))).*
        FROM read.deliveries d WHERE status = 'dead_letter' RETURNING id";
    let pending: Uuid = sqlx::query_scalar(pending).fetch_one(&world.servers.pool).await.unwrap();
    world.read_models.show_all().await;
    assert_eq!(listed("failing=true").await, (json!(1), vec![gone["name"].clone()]));
    sqlx::query("DELETE FROM read.deliveries WHERE id = $1")
        .bind(pending)
        .execute(&world.servers.pool)
        .await
        .unwrap();
    // Only the newest message counts.
    server.react(Reaction::Take);
    world.admin.post(&format!("{}/test", path(&gone)), json!({})).await.expect(201);
    until_newest(&world, &gone, "delivered").await;
    assert_eq!(listed("failing=true").await, (json!(0), vec![]));
    world.finish().await;
}

#[tokio::test]
async fn secrets_of_contacts_are_not_shown_again() {
    let world = World::start().await;
    let chat = json!({"name": "room", "kind": "chat", "format": "slack", "url": "https://chat.example.org/hooks/s3cret"});
    let made = create(&world, chat).await;
    assert_eq!((&made["host"], &made["url"]), (&json!("chat.example.org"), &json!(null)));
    let hook =
        json!({"name": "hook", "kind": "webhook", "url": "https://example.org/hook", "secret": "s3cret"});
    let signed = create(&world, hook).await;
    assert_eq!(signed["has_secret"], true);
    for contact in [&made, &signed] {
        let id = contact["public_id"].as_str().unwrap();
        let stream = world.admin.get(&format!("/api/v1/log/streams/contact/{id}")).await.expect(200);
        let shown = format!("{stream}{}", world.admin.get(&path(contact)).await.expect(200));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("[hidden]"), "{shown}");
    }
    let cleared = world.admin.put(&path(&signed), json!({"secret": null})).await.expect(200);
    assert_eq!(cleared["has_secret"], false);
    world.finish().await;
}

#[tokio::test]
async fn a_test_message_reaches_every_kind_of_contact() {
    let (server, hook, chat) =
        (MailServer::start().await, Receiver::signed("s3cret").await, Receiver::lenient().await);
    let world = mailing(&server).await;
    let mail = create(&world, by_mail("day")).await;
    let signed = json!({"name": "hook", "kind": "webhook", "url": hook.url(), "secret": "s3cret"});
    let signed = create(&world, signed).await;
    let mut sent = Vec::new();
    for contact in [&mail, &signed] {
        sent.push(world.admin.post(&format!("{}/test", path(contact)), json!({})).await.expect(201));
    }
    for format in ["slack", "mattermost", "teams"] {
        let room = json!({"name": format, "kind": "chat", "format": format, "url": chat.url_of(format)});
        let room = create(&world, room).await;
        world.admin.post(&format!("{}/test", path(&room)), json!({})).await.expect(201);
        until_newest(&world, &room, "delivered").await;
    }
    let mails = server.until_got(1).await;
    assert_eq!(
        (mails[0].to.as_str(), mails[0].header("Subject").as_str()),
        ("day@example.org", "Test message of Signalbox")
    );
    assert_eq!(
        mails[0].header("Message-ID"),
        format!("<{}@plant.example>", sent[0]["event_id"].as_str().unwrap())
    );
    let got = hook.until_got(1).await;
    assert_eq!((got[0].refused, got[0].json()["type"].as_str()), (None, Some("contact.test")));
    let bodies: Vec<_> = chat.until_got(3).await.iter().map(|got| got.json()).collect();
    assert!(bodies[0]["text"].as_str().unwrap().contains("test message to the contact slack"), "{bodies:?}");
    assert_eq!(bodies[2]["type"], "message");
    let shown = until_newest(&world, &mail, "delivered").await;
    assert_eq!((&shown["response_code"], &shown["attempts"]), (&json!(250), &json!(1)));
    world.finish().await;
}

#[tokio::test]
async fn a_refused_receiver_is_given_up_at_once_and_can_be_tried_again() {
    let server = MailServer::start().await;
    let world = mailing(&server).await;
    let contact = create(&world, by_mail("gone")).await;
    server.react(Reaction::Refuse("550 no such user"));
    world.admin.post(&format!("{}/test", path(&contact)), json!({})).await.expect(201);
    let dead = until_newest(&world, &contact, "dead_letter").await;
    assert_eq!((&dead["attempts"], &dead["response_code"]), (&json!(1), &json!(550)));
    assert_eq!(dead["last_error"], "The mail server refused the mail with code 550 (no such user)");
    let entries = "/api/v1/logging?source=webhooks".to_owned();
    let entry = world.admin.until(entries, |page| page["total"] == 1).await;
    let content = entry["data"][0]["content"].as_str().unwrap();
    assert!(content.contains("contact gone") && content.contains("answered 550"), "{entry}");
    assert!(!content.contains("no such user"), "everybody reads it: {entry}");
    server.react(Reaction::Take);
    let message = format!("{}/messages/{}", path(&contact), dead["public_id"].as_str().unwrap());
    world.admin.post(&format!("{message}/redeliver"), json!({})).await.expect(200);
    until_newest(&world, &contact, "delivered").await;
    let detail = world.admin.get(&message).await.expect(200);
    assert_eq!(detail["attempt_log"].as_array().unwrap().len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn the_words_of_a_receiver_are_for_admins() {
    let server = MailServer::start().await;
    let world = mailing(&server).await;
    let (contact, boiler) = (create(&world, by_mail("gone")).await, event(&world, "boiler").await);
    server.react(Reaction::Refuse("550 no such user"));
    rule(&world, &boiler, json!({"severity": "critical", "contact_ids": [contact["public_id"]]})).await;
    send(&world.admin, &boiler, [11.0]).await;
    until_newest(&world, &contact, "dead_letter").await;
    let alarm = until(&world, "firing").await;
    for (client, expected) in [
        (&world.admin, "The mail server refused the mail with code 550 (no such user)"),
        (&world.user("olga", "operator").await, "The receiver answered 550"),
        (&world.user("vera", "viewer").await, "The receiver answered 550"),
    ] {
        let one = client.get(&super::path(&alarm)).await.expect(200);
        assert_eq!(one["notifications"][0]["error"], expected);
        let listed = client.get(super::ALARMS).await.expect(200);
        assert_eq!(listed["data"][0]["notifications"][0]["error"], expected);
    }
    world.finish().await;
}

#[tokio::test]
async fn greylisting_and_a_server_that_hangs_delay_one_contact_alone() {
    let (server, hook) = (MailServer::start().await, Receiver::start().await);
    let world = mailing(&server).await;
    let contact = create(&world, by_mail("day")).await;
    let other = create(&world, json!({"name": "hook", "kind": "webhook", "url": hook.url()})).await;
    server.react(Reaction::Hang);
    world.admin.post(&format!("{}/test", path(&contact)), json!({})).await.expect(201);
    world.admin.post(&format!("{}/test", path(&other)), json!({})).await.expect(201);
    until_newest(&world, &other, "delivered").await;
    let failed = until_newest(&world, &contact, "failed").await;
    assert_eq!(failed["last_error"], "The mail server did not finish within 10 s");
    server.react(Reaction::Refuse("451 try again later"));
    eventually(seconds(30), async || messages(&world, &contact).await[0]["response_code"] == 451).await;
    world.finish().await;
}

#[tokio::test]
async fn a_service_without_a_mail_server_says_so() {
    let world = World::start().await;
    let contact = create(&world, by_mail("day")).await;
    world.admin.post(&format!("{}/test", path(&contact)), json!({})).await.expect(201);
    let failed = until_newest(&world, &contact, "failed").await;
    assert_eq!(failed["last_error"], "No mail server is configured: set server and sender in [mail]");
    world.finish().await;
}

#[tokio::test]
async fn rules_name_contacts_that_exist() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let contact = create(&world, by_mail("day")).await;
    let id = &contact["public_id"];
    let mut new = above_10("too hot", &boiler);
    for unknown in [json!(["unknown"]), json!(["0199b5a1-0000-7000-8000-000000000000"])] {
        new["contact_ids"] = unknown;
        world.admin.post(rules::RULES, new.clone()).await.error(404);
    }
    new["contact_ids"] = json!([id]);
    new["summary"] = json!("{channel} is hot");
    new["remind_seconds"] = json!(600);
    let made = rules::create(&world, new).await;
    assert_eq!((&made["alarm"], &made["contact_ids"]), (&json!(true), &json!([id])));
    let path = rules::path(&made);
    for (change, field) in [
        (json!({"summary": "{name}"}), "summary"),
        (json!({"remind_seconds": 5}), "remind_seconds"),
        (json!({"escalate_seconds": 600}), "escalation_contact_ids"),
        (json!({"contact_ids": null}), "contact_ids"),
        (json!({"alarm": false, "summary": "x"}), "summary"),
    ] {
        let message = world.admin.put(&path, change.clone()).await.error(422);
        assert!(message.starts_with(field), "{change}: {message}");
    }
    let plain = world.admin.put(&path, json!({"alarm": false})).await.expect(200);
    assert_eq!((&plain["contact_ids"], &plain["summary"]), (&json!([]), &json!(null)));
    let restored = world.admin.post(&format!("{path}/restore"), json!({"version": 1})).await.expect(200);
    assert_eq!((&restored["contact_ids"], &restored["remind_seconds"]), (&json!([id]), &json!(600)));
    world.admin.delete(&self::path(&contact)).await.error(409);
    world.admin.put(&path, json!({"name": "hot"})).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn an_alarm_of_a_rule_without_contacts_notifies_no_one() {
    let server = MailServer::start().await;
    let world = mailing(&server).await;
    let contact = create(&world, by_mail("day")).await;
    let boiler = event(&world, "boiler").await;
    rule(&world, &boiler, json!({"severity": "critical"})).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    assert_eq!(alarm["notifications"], json!([]));
    assert!(messages(&world, &contact).await.is_empty());
    world.finish().await;
}
