//! Writing beside a peer, in turns: rates, and what a value costs in time of the processors. That depends less on what else the
//! machine does.

use crate::{
    load, report,
    system::{Peer, Program, Servers, seconds},
};

const CONNECTIONS: usize = 8;

/// Both sides.
pub struct Beside<'a> {
    pub servers: &'a Servers,
    pub program: &'a Program,
    pub peer: &'a Peer,
    pub our_address: std::net::SocketAddr,
}

/// Measurements of both sides.
#[derive(Default)]
pub struct Measured {
    /// Values in a second.
    rates: [Vec<f64>; 2],
    /// Microseconds of the processors per value, without the client's.
    costs: [Vec<f64>; 2],
}

impl Beside<'_> {
    /// Sends requests with `values` values altogether to us, and then those with the same to the peer.
    pub fn turn(
        &self,
        requests: [&[Vec<u8>]; 2],
        values: usize,
        measured: Option<&mut Measured>,
    ) -> anyhow::Result<()> {
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        for (requests, address) in requests.into_iter().zip([self.our_address, self.peer.address]) {
            let before = self.spent()?;
            let load = load::send_all(address, CONNECTIONS, requests, 204)?;
            let after = self.spent()?;
            let at = rates.len();
            rates.push(load.rate * values as f64 / requests.len() as f64);
            costs.push((after[at] - before[at]) * 1e6 / values as f64);
        }
        if let Some(measured) = measured {
            for at in 0..2 {
                measured.rates[at].push(rates[at]);
                measured.costs[at].push(costs[at]);
            }
        }
        Ok(())
    }

    fn spent(&self) -> anyhow::Result<[f64; 2]> {
        let servers: f64 = self.servers.cpu_seconds()?.iter().sum();
        Ok([seconds(self.program.pid())? + servers, self.peer.cpu_seconds()?])
    }
}

impl Measured {
    /// Prints medians, and the median of the ratios of each turn, which must be at least `least`.
    pub fn print(&self, unit: &str, least: f64) {
        let median = |values: &[f64]| report::median(values.iter().copied());
        let [ours, theirs] = &self.rates;
        report::pair("rate", median(ours), median(theirs), unit);
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        report::ratio("ratio", report::median(ratios), least);
        let [ours, theirs] = &self.costs;
        report::pair("of the processors per value", median(ours), median(theirs), "µs");
    }
}
