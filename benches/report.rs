//! Tables of what was measured.

/// The middle one of `values`.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which the share `at` of `values` lies.
pub fn quantile(values: impl IntoIterator<Item = f64>, at: f64) -> f64 {
    let mut sorted: Vec<_> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1) as f64 * at).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Prints a title.
pub fn title(text: &str) {
    println!("\n{text}");
}

/// Prints one figure that stands by itself.
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("  {name:<34} {} {unit}", number(value));
}

/// Prints one figure with the bound that it must keep.
pub fn bounded(name: &str, value: f64, unit: &str, most: f64) {
    println!("  {name:<34} {} {unit}   at most {most}: {}", number(value), verdict(value <= most));
}

/// Prints what was measured of ours and of the peer.
pub fn pair(name: &str, ours: f64, theirs: f64, unit: &str) {
    println!("  {name:<34} {} {} {unit}", number(ours), number(theirs));
}

/// Prints what was measured of ours and of two peers.
pub fn triple(name: &str, all: [f64; 3], unit: &str) {
    let [ours, one, other] = all.map(number);
    println!("  {name:<34} {ours} {one} {other} {unit}");
}

/// Prints a ratio with the bound that it must keep.
pub fn ratio(name: &str, value: f64, least: f64) {
    println!("  {name:<34} {value:>12.2}   at least {least}: {}", verdict(value >= least));
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:>12.0}") } else { format!("{value:>12.2}") }
}
