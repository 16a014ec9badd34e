//! The series of a request.

use std::{collections::BTreeMap, fmt::Write};

use chrono::DateTime;
use prost::Message;
use signalbox_domain::monitoring::Labels;

use super::messages::{RequestV2, Sample, WriteRequest};
use crate::{monitoring::ingestion::SeriesValue, problem::Problem};

/// Bytes of a request at most, compressed and decompressed.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Samples of a request at most.
const MAX_SAMPLES: usize = 100_000;
/// Characters of the name of a series in an answer at most.
const MAX_NAME: usize = 200;
/// The label that names a metric.
pub(super) const NAME: &str = "__name__";

/// The version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The contents of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Batch {
    pub(super) series: Vec<Labels>,
    pub(super) values: Vec<SeriesValue>,
    /// Place of the series of each value in the request, from 0.
    pub(super) places: Vec<usize>,
    /// Places of series with samples that are not written, and why.
    pub(super) faults: BTreeMap<usize, Fault>,
    /// How many samples there are, without those that are no numbers.
    pub(super) samples: usize,
    /// Samples that are no numbers: stale markers, NaN and infinities.
    pub(super) not_numbers: u64,
    pub(super) histograms: u64,
}

/// Why samples of a series are not written.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    /// The series as PromQL writes it, cut; empty if its labels cannot be read.
    pub(super) series: String,
    pub(super) reason: String,
    /// How many samples are refused, and how many it has.
    pub(super) refused: usize,
    pub(super) samples: usize,
}

impl Batch {
    /// Reads a request that is compressed by snappy.
    pub(super) fn read(body: &[u8], version: Version) -> Result<Self, Problem> {
        let message = decompressed(body)?;
        let mut batch = Self::default();
        match version {
            Version::One => {
                let request = WriteRequest::decode(message.as_slice());
                let request = request.map_err(|_| unreadable("a prometheus.WriteRequest"))?;
                for (place, series) in request.timeseries.into_iter().enumerate() {
                    batch.histograms += series.histograms.len() as u64;
                    let pairs = series.labels.into_iter().map(|label| (label.name, label.value));
                    batch.add(place, labels_of(pairs), &series.samples)?;
                }
            }
            Version::Two => {
                let request = RequestV2::decode(message.as_slice());
                let request = request.map_err(|_| unreadable("an io.prometheus.write.v2.Request"))?;
                for (place, series) in request.timeseries.iter().enumerate() {
                    batch.histograms += series.histograms.len() as u64;
                    let pairs = resolved(&request.symbols, &series.labels_refs);
                    batch.add(place, pairs.and_then(labels_of), &series.samples)?;
                }
            }
        }
        Ok(batch)
    }

    /// Adds the samples of the series at `place` of the request.
    fn add(
        &mut self,
        place: usize,
        labels: Result<Labels, &'static str>,
        samples: &[Sample],
    ) -> Result<(), Problem> {
        let finite = samples.iter().filter(|sample| sample.value.is_finite()).count();
        self.samples += finite;
        let labels = match labels {
            Ok(labels) => labels,
            Err(reason) => {
                let (reason, refused, samples) = (reason.to_owned(), finite, finite);
                self.faults.insert(place, Fault { series: String::new(), reason, refused, samples });
                return Ok(());
            }
        };
        let before = self.values.len();
        let mut untimed = 0;
        for sample in samples {
            if !sample.value.is_finite() {
                self.not_numbers += 1;
                continue;
            }
            let Some(time) = DateTime::from_timestamp_millis(sample.timestamp) else {
                untimed += 1;
                continue;
            };
            let (series, time) = (self.series.len(), Some(time));
            self.values.push(SeriesValue { series, time, value: sample.value });
            self.places.push(place);
        }
        if untimed > 0 {
            let reason = "a timestamp is outside of 1970 to 9999".to_owned();
            let series = shortened(as_promql(&labels));
            self.faults.insert(place, Fault { series, reason, refused: untimed, samples: finite });
        }
        if self.values.len() > MAX_SAMPLES {
            let detail = format!("the request has more than {MAX_SAMPLES} samples: send fewer at once");
            return Err(Problem::too_large(detail));
        }
        // No channel is made for a series without values.
        if self.values.len() > before {
            self.series.push(labels);
        }
        Ok(())
    }
}

/// A name of a series for an answer: labels may be long.
pub(super) fn shortened(name: String) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

fn unreadable(what: &str) -> Problem {
    Problem::malformed(format!("the body is not {what}"))
}

/// A body that is compressed by snappy.
pub(super) fn decompressed(body: &[u8]) -> Result<Vec<u8>, Problem> {
    let bytes = snap::raw::decompress_len(body).map_err(|_| unreadable("compressed by snappy"))?;
    if bytes > MAX_BYTES {
        return Err(Problem::too_large(format!("the decompressed body is larger than {MAX_BYTES} bytes")));
    }
    let message = snap::raw::Decoder::new().decompress_vec(body);
    message.map_err(|_| unreadable("compressed by snappy"))
}

/// Name and value of a label as they arrive.
type Pair = (Vec<u8>, Vec<u8>);

/// The labels that `refs` names in pairs.
fn resolved(symbols: &[Vec<u8>], refs: &[u32]) -> Result<Vec<Pair>, &'static str> {
    let symbol = |place: &u32| symbols.get(*place as usize).cloned();
    let pair = |pair: &[u32]| match pair {
        [name, value] => symbol(name).zip(symbol(value)),
        _ => None,
    };
    refs.chunks(2).map(pair).collect::<Option<_>>().ok_or("its labels_refs do not name symbols in pairs")
}

/// Labels from `pairs`. A label with an empty value is left out, as everywhere in Prometheus.
fn labels_of(pairs: impl IntoIterator<Item = Pair>) -> Result<Labels, &'static str> {
    let text = |bytes| String::from_utf8(bytes).map_err(|_| "its labels are not UTF-8");
    let mut labels = Labels::new();
    for (name, value) in pairs {
        let (name, value) = (text(name)?, text(value)?);
        if !value.is_empty() && labels.insert(name, value).is_some() {
            return Err("two of its labels have the same name");
        }
    }
    match labels.get(NAME) {
        Some(name) if is_metric_name(name) => Ok(labels),
        Some(_) => Err("its label __name__ is not the name of a metric"),
        None => Err("it has no label __name__"),
    }
}

/// Whether Prometheus takes `name` for a metric: `[a-zA-Z_:][a-zA-Z0-9_:]*`. It refuses a whole answer that has another one.
pub(super) fn is_metric_name(name: &str) -> bool {
    let is_first = |letter: u8| letter.is_ascii_alphabetic() || letter == b'_' || letter == b':';
    name.as_bytes().first().is_some_and(|first| is_first(*first))
        && name.bytes().all(|letter| is_first(letter) || letter.is_ascii_digit())
}

/// The series as PromQL writes it: `name{label="value", …}`.
pub(super) fn as_promql(labels: &Labels) -> String {
    let mut text = labels.get(NAME).cloned().unwrap_or_default();
    let others = labels.iter().filter(|(name, _)| *name != NAME);
    for (index, (name, value)) in others.enumerate() {
        let begin = if index == 0 { "{" } else { ", " };
        // Writing to a text does not fail.
        let _ = write!(text, "{begin}{name}=\"");
        for letter in value.chars() {
            let _ = match letter {
                '\\' => text.write_str("\\\\"),
                '"' => text.write_str("\\\""),
                '\n' => text.write_str("\\n"),
                control if control.is_control() => write!(text, "\\u{:04x}", u32::from(control)),
                plain => text.write_char(plain),
            };
        }
        text.push('"');
    }
    if labels.len() > 1 {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        super::messages::{Label, NotTaken, TimeSeries, TimeSeriesV2},
        *,
    };

    fn zipped(message: &impl Message) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).unwrap()
    }

    fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
        let label = |(name, value): &(&str, &str)| Label { name: (*name).into(), value: (*value).into() };
        TimeSeries {
            labels: labels.iter().map(label).collect(),
            samples: samples
                .iter()
                .map(|(value, timestamp)| Sample { value: *value, timestamp: *timestamp })
                .collect(),
            histograms: Vec::new(),
        }
    }

    fn read(timeseries: Vec<TimeSeries>) -> Batch {
        Batch::read(&zipped(&WriteRequest { timeseries }), Version::One).unwrap()
    }

    #[test]
    fn samples_are_values_of_their_series() {
        let batch = read(vec![
            series(&[("__name__", "up"), ("job", "a\"b"), ("empty", "")], &[(1.0, 1000), (0.0, 2000)]),
            series(&[("__name__", "down")], &[(2.5, 1500)]),
        ]);
        let names: Vec<_> = batch.series.iter().map(as_promql).collect();
        assert_eq!(names, [r#"up{job="a\"b"}"#, "down"]);
        assert_eq!(batch.series[0].len(), 2);
        let values: Vec<_> = batch.values.iter().map(|value| (value.series, value.value)).collect();
        assert_eq!(values, [(0, 1.0), (0, 0.0), (1, 2.5)]);
        assert_eq!(batch.values[2].time.map(|time| time.timestamp_micros()), Some(1_500_000));
        assert_eq!(batch.places, [0, 0, 1]);
    }

    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        let samples = [(f64::NAN, 1), (f64::INFINITY, 2), (stale, 3), (1.0, 4)];
        let batch =
            read(vec![series(&[("__name__", "a")], &samples), series(&[("__name__", "b")], &samples[..3])]);
        assert_eq!((batch.values.len(), batch.series.len(), batch.not_numbers), (1, 1, 6));
    }

    #[test]
    fn bad_series_are_named_and_the_others_read() {
        let batch = read(vec![
            series(&[("job", "a")], &[(1.0, 1)]),
            series(&[("__name__", "a"), ("x", "1"), ("x", "2")], &[(1.0, 1)]),
            series(&[("__name__", "a")], &[(1.0, i64::MAX), (2.0, 2)]),
            series(&[("__name__", "a b")], &[(1.0, 1)]),
            TimeSeries {
                labels: vec![Label { name: NAME.into(), value: vec![0xff] }],
                ..series(&[], &[(1.0, 1)])
            },
        ]);
        assert_eq!(batch.faults.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!((batch.values.len(), batch.places[0], batch.samples), (1, 2, 6));
        let partly = &batch.faults[&2];
        assert_eq!((partly.series.as_str(), partly.refused, partly.samples), ("a", 1, 2));
    }

    #[test]
    fn version_2_names_labels_by_symbols() {
        let symbols = ["", "__name__", "up", "job", "a"].map(Vec::from).to_vec();
        let one = |labels_refs: &[u32]| TimeSeriesV2 {
            labels_refs: labels_refs.to_vec(),
            samples: vec![Sample { value: 1.0, timestamp: 1000 }],
            histograms: vec![NotTaken {}],
        };
        let timeseries = vec![one(&[1, 2, 3, 4]), one(&[1, 2, 3]), one(&[1, 9])];
        let batch = Batch::read(&zipped(&RequestV2 { symbols, timeseries }), Version::Two).unwrap();
        assert_eq!(as_promql(&batch.series[0]), "up{job=\"a\"}");
        assert_eq!((batch.series.len(), batch.histograms), (1, 3));
        assert_eq!(batch.faults.keys().copied().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn bodies_that_cannot_be_read_are_refused() {
        let garbage = snap::raw::Encoder::new().compress_vec(b"garbage").unwrap();
        for body in [&b""[..], b"garbage", &garbage] {
            assert!(Batch::read(body, Version::One).is_err(), "{body:?}");
        }
        let bomb = snap::raw::Encoder::new().compress_vec(&vec![0; MAX_BYTES + 1]).unwrap();
        let refusal = Batch::read(&bomb, Version::One).unwrap_err();
        assert!(refusal.detail().contains("larger than"), "{refusal:?}");
    }
}
