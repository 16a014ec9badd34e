use serde_json::{Value, json};

use super::{JOBS, path, submit, until_status, world};

#[tokio::test]
async fn a_job_is_visible_to_its_owner_and_an_anonymous_one_by_its_id() {
    let world = world(|_| {}).await;
    let (owner, other, anonymous) =
        (world.user("owner", "operator").await, world.user("other", "admin").await, world.anonymous());
    let id = submit(&owner, "a.txt", b"secret").await;
    until_status(&owner, &id, "completed").await;
    for client in [&other, &anonymous, &world.admin] {
        for (id, why) in
            [(id.as_str(), "foreign"), ("018f0000-0000-7000-8000-000000000000", "unknown"), ("x", "none")]
        {
            let answers = [
                client.get(&path(id)).await,
                client.delete(&path(id)).await,
                client.post(&format!("{}/retry", path(id)), json!({})).await,
                client.get(&format!("{}/result", path(id))).await,
            ];
            for answer in answers {
                let body = answer.expect(404);
                assert_eq!(
                    (&body["status"], &body["detail"]),
                    (&json!("not_found"), &json!("Job not found")),
                    "{why}"
                );
            }
        }
    }
    let job = submit(&anonymous, "a.txt", b"open").await;
    for client in [&other, &anonymous] {
        assert_eq!(until_status(client, &job, "completed").await["result_content"], "open");
    }
    assert_eq!(anonymous.get(JOBS).await.expect(200)["total"], 0, "anonymous jobs are in no list");
    world.finish().await;
    let closed = self::world(|config| config.extraction.require_auth = true).await;
    super::send(&closed.anonymous(), JOBS, "a.txt", b"text").await.error(401);
    closed.anonymous().get(JOBS).await.error(401);
    closed.finish().await;
}

#[tokio::test]
async fn jobs_are_listed_newest_first_without_their_texts() {
    let world = world(|_| {}).await;
    let client = world.user("owner", "viewer").await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(
            submit(&client, &format!("Bericht {number}.txt"), format!("text {number}").as_bytes()).await,
        );
    }
    let broken = submit(&client, "broken.pdf", b"%PDF-1.4 nothing").await;
    for id in &ids {
        until_status(&client, id, "completed").await;
    }
    until_status(&client, &broken, "failed").await;
    let keys = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
    };
    let get = async |query: &str| client.get(&format!("{JOBS}?{query}")).await.expect(200);
    let all = get("").await;
    assert_eq!(
        (&all["total"], &all["page"], &all["page_size"], &all["has_next"]),
        (&json!(6), &json!(1), &json!(50), &json!(false))
    );
    assert_eq!(all["items"], all["data"]);
    ids.push(broken.clone());
    ids.reverse();
    assert_eq!(keys(&all), ids);
    assert!(all["items"].as_array().unwrap().iter().all(|job| job["result_content"].is_null()));
    let second = get("page=2&page_size=4").await;
    assert_eq!((keys(&second), &second["has_next"]), (ids[4..].to_vec(), &json!(false)));
    assert_eq!(get("page=1&page_size=4").await["has_next"], true);
    assert_eq!(keys(&get("status=failed").await), [broken]);
    assert_eq!(get("filename=BERICHT").await["total"], 5);
    for wrong in ["page=0", "page_size=101", "page=x", "status=running", "status=", "from=yesterday"] {
        let refused = client.get(&format!("{JOBS}?{wrong}")).await;
        let problem = refused.expect(422);
        let (name, value) = wrong.split_once('=').unwrap();
        assert_eq!(problem["errors"][0]["pointer"], format!("/{name}"), "{wrong}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(value.len() < 3 || !detail.contains(value), "{wrong}: {detail}");
    }
    let stats = client.get("/api/v1/jobs/stats/overview").await.expect(200);
    assert_eq!(
        stats,
        json!({"queue_depth": 0, "total_jobs": 6, "completed": 5, "failed": 1, "processing": 0, "queued": 0, "cancelled": 0})
    );
    assert_eq!(world.admin.get("/api/v1/jobs/stats/overview").await.expect(200)["total_jobs"], 0);
    world.finish().await;
}
