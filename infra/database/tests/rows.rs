//! Structs are read from rows as their fields say.

use signalbox_database::connect;
use signalbox_from_row::FromRow;
use signalbox_test_support::fresh_database;
use sqlx::types::Json;

#[derive(Debug, PartialEq, FromRow)]
struct Point {
    x: f64,
    y: Option<i32>,
}

#[derive(Debug, PartialEq, FromRow)]
struct Mark {
    id: i64,
    r#type: String,
    #[row(flatten)]
    at: Point,
    #[row(json)]
    tags: Vec<String>,
    #[row(json_or_null)]
    owner: Option<String>,
    #[row(default)]
    size: Option<i32>,
    raw: Json<Vec<i32>>,
}

const ALL: &str =
    "SELECT 7::bigint AS id, 'dot' AS type, 1.5::float8 AS x, NULL::int AS y, '[\"a\"]'::jsonb AS tags,
    '\"me\"'::jsonb AS owner, 3 AS size, '[1]'::jsonb AS raw";

#[tokio::test]
async fn fields_are_columns_parts_json_or_defaults() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let read = async |sql: &str| sqlx::query_as::<_, Mark>(sql).fetch_one(&pool).await;
    let whole = read(ALL).await.unwrap();
    let expected = Mark {
        id: 7,
        r#type: "dot".into(),
        at: Point { x: 1.5, y: None },
        tags: vec!["a".into()],
        owner: Some("me".into()),
        size: Some(3),
        raw: Json(vec![1]),
    };
    assert_eq!(whole, expected);
    let sparse = ALL.replace("'\"me\"'::jsonb", "NULL::jsonb").replace("3 AS size, ", "");
    assert_eq!(read(&sparse).await.unwrap(), Mark { owner: None, size: None, ..expected });
    let lacking = read(&ALL.replace("AS x", "AS z")).await.unwrap_err();
    assert!(matches!(&lacking, sqlx::Error::ColumnNotFound(name) if name == "x"), "{lacking}");
    let wrong = read(&ALL.replace("3 AS size", "'three' AS size")).await.unwrap_err();
    assert!(matches!(&wrong, sqlx::Error::ColumnDecode { index, .. } if index == "\"size\""), "{wrong}");
    let null = read(&ALL.replace("1.5::float8", "NULL::float8")).await.unwrap_err();
    assert!(matches!(&null, sqlx::Error::ColumnDecode { .. }), "{null}");
}
