//! Plain selectors and aggregations, at instants with a sample: Prometheus over our remote read answers what VictoriaMetrics answers
//! for the same samples. Its windows and rates are defined otherwise, so functions of ranges are left out.

use std::fmt::Write;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    promql::{is_all_same, one_of, reading_from, seed, values},
    series, write,
};
use crate::harness::{VictoriaMetrics, World};

const QUERIES: usize = 200;
const SAMPLES: i64 = 400;
const STEP: i64 = 15_000;

fn query(rng: &mut StdRng) -> String {
    let name = one_of(rng, &["pressure", "level", "{__name__=~\"pre.*|lev.*\"}"]);
    let matchers = ["", "{line=\"a\"}", "{line!=\"a\"}", "{cell=~\"1|3\"}", "{cell!~\"1.*\",line=~\".+\"}"];
    let selected = match name.starts_with('{') {
        true => name.to_owned(),
        false => format!("{name}{}", one_of(rng, &matchers)),
    };
    let by = one_of(rng, &["", "by (line) ", "without (cell) ", "by (cell, none) "]);
    match rng.random_range(0..4) {
        0 => selected,
        1 => format!("topk {by}(2, {selected})"),
        _ => format!(
            "{} {by}({selected})",
            one_of(rng, &["sum", "min", "max", "avg", "count", "stddev", "stdvar"])
        ),
    }
}

#[tokio::test]
async fn selectors_and_aggregations_have_the_answers_of_victoria_metrics() {
    let world = World::start().await;
    let seed = seed();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let begin = (world.clock.now().timestamp_millis() / STEP - 2 * SAMPLES) * STEP;
    let (mut sent, mut text) = (Vec::new(), String::new());
    for name in ["pressure", "level"] {
        for (line, cell) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "3"), ("c", "12")] {
            let samples: Vec<_> =
                (0..SAMPLES).map(|index| (rng.random_range(0.0..1e6), begin + index * STEP)).collect();
            for (value, time) in &samples {
                writeln!(text, "{name}{{line=\"{line}\",cell=\"{cell}\"}} {value:?} {time}").unwrap();
            }
            sent.push(series(&[("__name__", name), ("cell", cell), ("line", line)], &samples));
        }
    }
    assert_eq!(write(&world.admin, sent).await.status, 204);
    let judge = VictoriaMetrics::start(text).await;
    let ours = reading_from(&world).await;
    for _ in 0..QUERIES {
        let at = begin + rng.random_range(0..SAMPLES) * STEP;
        let asked = [("query", query(&mut rng)), ("time", (at / 1000).to_string())];
        let expected = values(&judge.get("query", &asked).await);
        let mut found = ours.get("query", &asked).await;
        // A read that a busy machine refuses or cuts off for a moment is a warning, and asked again.
        for _ in 0..3 {
            if found.get("warnings").is_some() {
                found = ours.get("query", &asked).await;
            }
        }
        let found = values(&found);
        assert!(
            expected.as_ref().is_ok_and(|series| !series.is_empty()),
            "seed {seed}: {asked:?}: {expected:?}"
        );
        assert!(
            is_all_same(&expected, &found),
            "seed {seed}: {asked:?}\nexpected {expected:?}\nfound    {found:?}"
        );
    }
    world.finish().await;
}
