use std::collections::BTreeMap;

use crate::report::quantile;

/// Below this, in milliseconds, p95 may be more than twice what it is at rest. Server, PostgreSQL, nats-server, bystander and
/// abusers share two cores here, on which a thread that becomes ready waits for a few slices of 3 to 4 ms; on machines of their own
/// abusers would not cause that, and no person perceives it.
const FLOOR_MS: f64 = 20.0;
/// Failures that are printed of each kind.
const SHOWN: usize = 3;

/// The bystander's kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Login,
    Channels,
    Datapoint,
    LiveValue,
    Series,
    Extraction,
    Export,
    /// From the request for a transfer until the agent's poll brings it.
    Dispatch,
    Upload,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Channels => "list of channels",
            Self::Datapoint => "datapoint posted",
            Self::LiveValue => "datapoint shown at a socket",
            Self::Series => "series",
            Self::Extraction => "text extracted",
            Self::Export => "small export",
            Self::Dispatch => "transfer to polling agent",
            Self::Upload => "upload of 64 KiB by the agent",
        }
    }
}

/// How long the bystander's requests took, in milliseconds, and which of them failed.
#[derive(Debug, Default)]
pub struct Measured {
    took: BTreeMap<Kind, Vec<f64>>,
    failed: BTreeMap<Kind, Vec<String>>,
}

impl Measured {
    pub fn add(&mut self, kind: Kind, result: anyhow::Result<f64>) {
        match result {
            Ok(took) => self.took.entry(kind).or_default().push(took),
            Err(error) => self.failed.entry(kind).or_default().push(format!("{error:#}")),
        }
    }

    fn p95(&self, kind: Kind) -> Option<f64> {
        self.took.get(&kind).map(|took| quantile(took.iter().copied(), 0.95))
    }

    fn failures(&self, kind: Kind) -> usize {
        self.failed.get(&kind).map_or(0, Vec::len)
    }

    pub fn print(&self, title: &str, rest: Option<&Self>) {
        println!("\n{title}");
        println!(
            "  {:<34} {:>7} {:>9} {:>9} {:>9} {:>7}",
            "bystander", "samples", "p50 ms", "p95 ms", "x rest", "failed"
        );
        for (kind, took) in &self.took {
            let (p50, p95) = (quantile(took.iter().copied(), 0.5), quantile(took.iter().copied(), 0.95));
            let ratio = rest.and_then(|rest| rest.p95(*kind)).map(|rest| format!("{:.2}", p95 / rest));
            println!(
                "  {:<34} {:>7} {p50:>9.1} {p95:>9.1} {:>9} {:>7}",
                kind.name(),
                took.len(),
                ratio.unwrap_or_default(),
                self.failures(*kind)
            );
        }
    }

    /// A sentence for each request that failed otherwise than by a refusal with 503 or 504, or took more than `most`
    /// milliseconds.
    pub fn worse_than_refused(&self, title: &str, most: f64) -> Vec<String> {
        let mut faults = Vec::new();
        for (kind, failed) in &self.failed {
            let others = failed.iter().filter(|error| !error.contains("503 ") && !error.contains("504 "));
            faults.extend(others.map(|error| format!("{title}: {} failed: {error}", kind.name())));
        }
        for (kind, took) in &self.took {
            let slowest = took.iter().copied().fold(0.0, f64::max);
            if slowest > most {
                faults.push(format!("{title}: {} took {slowest:.0} ms, more than {most:.0} ms", kind.name()));
            }
        }
        faults
    }

    /// A sentence for each kind of request that failed, or was too slow beside `rest`.
    pub fn faults(&self, title: &str, rest: Option<&Self>) -> Vec<String> {
        let mut faults = Vec::new();
        for (kind, failed) in &self.failed {
            let shown = failed.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
            faults.push(format!("{title}: {} failed {} times: {shown}", kind.name(), failed.len()));
        }
        let Some(rest) = rest else { return faults };
        for (kind, at_rest) in rest.took.keys().filter_map(|kind| Some((*kind, rest.p95(*kind)?))) {
            let most = (2.0 * at_rest).max(FLOOR_MS);
            match self.p95(kind) {
                None => faults.push(format!("{title}: no {} succeeded", kind.name())),
                Some(p95) if p95 > most => faults.push(format!(
                    "{title}: p95 of {} is {p95:.1} ms, more than {most:.1} ms ({at_rest:.1} ms at rest)",
                    kind.name()
                )),
                Some(_) => {}
            }
        }
        faults
    }
}
