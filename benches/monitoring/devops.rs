//! Hosts as the Time Series Benchmark Suite has them in its use case "devops", CPU only: ten tags, ten fields that wander.

use std::fmt::Write;

use rand::{Rng, SeedableRng, rngs::StdRng};

pub const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];
const SEED: u64 = 123;

pub struct Devops {
    rng: StdRng,
    /// Measurement and tags, and the values that the fields have.
    hosts: Vec<(String, [i8; FIELDS.len()])>,
}

impl Devops {
    pub fn new(hosts: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(SEED);
        let host = |number: usize| {
            let region = ["eu-central-1", "us-west-2", "ap-northeast-1"][number % 3];
            let tags = format!(
                "cpu,hostname=host_{number},region={region},datacenter={region}a,rack={},os=Ubuntu16.04LTS,arch=x64,team=SF,service={},service_version={},service_environment=production",
                number % 97,
                number % 19,
                number % 2
            );
            (tags, std::array::from_fn(|_| rng.random_range(0..=100)))
        };
        let hosts = (0..hosts).map(host).collect();
        Self { rng, hosts }
    }

    /// A line of each host, `second`s after 1970.
    pub fn lines(&mut self, second: i64) -> Vec<String> {
        let Self { rng, hosts } = self;
        let line = |(tags, values): &mut (String, [i8; FIELDS.len()])| {
            let mut line = tags.clone();
            for (index, (name, value)) in FIELDS.iter().zip(values).enumerate() {
                *value = (*value + rng.random_range(-2..=2_i8)).clamp(0, 100);
                let between = if index == 0 { ' ' } else { ',' };
                // Writing to a text does not fail.
                let _ = write!(line, "{between}{name}={value}i");
            }
            let _ = writeln!(line, " {second}000000000");
            line
        };
        hosts.iter_mut().map(line).collect()
    }
}
