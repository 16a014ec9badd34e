//! The series of a request.

use std::{collections::BTreeMap, fmt::Write};

use chrono::DateTime;
use prost::Message;
use signalbox_domain::monitoring::Labels;

use super::{
    fields::{Content, Fields, Unreadable},
    messages::{Label, Sample, TimeSeries, TimeSeriesV2},
};
use crate::{
    monitoring::ingestion::{Notation, SeriesKeys, SeriesValue},
    problem::Problem,
};

/// Bytes of a request at most, compressed and decompressed.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Samples of a request at most.
const MAX_SAMPLES: usize = 100_000;
/// Symbols of a request at most: each of its series may have four pairs of its own.
const MAX_SYMBOLS: usize = 8 * MAX_SAMPLES;
/// Characters of the name of a series in an answer at most.
const MAX_NAME: usize = 200;
/// The message that a body of version 2.0 holds.
const VERSION_1: &str = "a prometheus.WriteRequest";
const VERSION_2: &str = "an io.prometheus.write.v2.Request";
/// The label that names a metric.
pub(super) const NAME: &str = "__name__";

/// The version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    /// Refuses a message with fields of the other version: they would be left out, though 204 means that all is written.
    fn check(self, message: &[u8]) -> Result<(), Problem> {
        let (name, other, fields) = match self {
            Self::One => (VERSION_1, VERSION_2, 4..=5),
            Self::Two => (VERSION_2, VERSION_1, 1..=3),
        };
        if Fields(message).map_while(Result::ok).any(|field| fields.contains(&field.tag)) {
            let detail = format!(
                "the body is {other}, but its Content-Type is that of {name}: send the type of the body"
            );
            return Err(Problem::malformed(detail));
        }
        Ok(())
    }
}

/// The contents of a request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) series: SeriesKeys,
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
        let message = decompressed(body, MAX_BYTES)?;
        version.check(&message)?;
        let mut batch = Self {
            series: SeriesKeys::new(&NOTATION),
            values: Vec::new(),
            places: Vec::new(),
            faults: BTreeMap::new(),
            samples: 0,
            not_numbers: 0,
            histograms: 0,
        };
        match version {
            Version::One => {
                for (place, series) in messages(&message, 1).enumerate() {
                    let series = series.and_then(|series| batch.add_written(place, series));
                    series.map_err(|Unreadable| unreadable(VERSION_1))?;
                    batch.check_size()?;
                }
            }
            Version::Two => {
                let symbols = read_symbols(&message)?;
                for (place, series) in messages(&message, 5).enumerate() {
                    let series = series.and_then(|series| batch.add_version_2(place, series, &symbols));
                    series.map_err(|Unreadable| unreadable(VERSION_2))?;
                    batch.check_size()?;
                }
            }
        }
        Ok(batch)
    }

    /// Adds a `prometheus.TimeSeries` as it is written. The bytes of its labels name it.
    fn add_written(&mut self, place: usize, series: &[u8]) -> Result<(), Unreadable> {
        let mut named = Ok(());
        for field in Fields(series) {
            let field = field?;
            match field.tag {
                1 => named = named.and_then(|()| self.series.write(&[field.written])),
                4 => self.histograms += 1,
                _ => {}
            }
        }
        let samples = messages(series, 2).map(|sample| sample.and_then(read_sample));
        self.add(place, named, samples)
    }

    /// Adds an `io.prometheus.write.v2.TimeSeries`, whose labels are among `symbols`.
    fn add_version_2(&mut self, place: usize, series: &[u8], symbols: &[&[u8]]) -> Result<(), Unreadable> {
        let series = TimeSeriesV2::decode(series).map_err(|_| Unreadable)?;
        self.histograms += series.histograms.len() as u64;
        let named = self.write_name(symbols, &series.labels_refs);
        self.add(place, named, series.samples.iter().copied().map(Ok))
    }

    /// Writes the labels that `refs` names in pairs as version 1 does, as the name of the next series.
    fn write_name(&mut self, symbols: &[&[u8]], refs: &[u32]) -> Result<(), &'static str> {
        let symbol = |place: u32| symbols.get(place as usize);
        for pair in refs.chunks(2) {
            let pair = if let [name, value] = *pair { symbol(name).zip(symbol(value)) } else { None };
            let Some((name, value)) = pair else {
                self.series.discard();
                return Err("its labels_refs do not name symbols in pairs");
            };
            write_label(&mut self.series, name, value)?;
        }
        Ok(())
    }

    /// Adds the samples of the series at `place` of the request, which is `named` if its name is written.
    fn add(
        &mut self,
        place: usize,
        named: Result<(), &'static str>,
        samples: impl Iterator<Item = Result<Sample, Unreadable>>,
    ) -> Result<(), Unreadable> {
        if let Err(reason) = named {
            return self.leave_out(place, reason, samples);
        }
        let (before, series) = (self.values.len(), self.series.len());
        let mut untimed = 0;
        for sample in samples {
            let sample = sample?;
            match DateTime::from_timestamp_millis(sample.timestamp) {
                _ if !sample.value.is_finite() => self.not_numbers += 1,
                None => untimed += 1,
                time => self.values.push(SeriesValue { series, time, value: sample.value }),
            }
            // The request is refused as a whole. Only what is counted there may end this: nothing else is missed.
            if self.values.len() - before + untimed > MAX_SAMPLES {
                break;
            }
        }
        let timed = self.values.len() - before;
        self.samples += timed + untimed;
        self.places.resize(self.values.len(), place);
        // No channel is made for a series without values.
        if timed == 0 && untimed == 0 {
            self.series.discard();
            return Ok(());
        }
        let series = self.series.end();
        if untimed > 0 {
            let reason = "a timestamp is outside of 1970 to 9999".to_owned();
            let series = self.name(series);
            self.faults.insert(place, Fault { series, reason, refused: untimed, samples: timed + untimed });
        }
        Ok(())
    }

    /// Notes that the samples of the series at `place` of the request are not written.
    fn leave_out(
        &mut self,
        place: usize,
        reason: &str,
        samples: impl Iterator<Item = Result<Sample, Unreadable>>,
    ) -> Result<(), Unreadable> {
        let finite = samples.flatten().filter(|sample| sample.value.is_finite()).count();
        self.samples += finite;
        if finite > 0 {
            let (series, reason) = (String::new(), reason.to_owned());
            self.faults.insert(place, Fault { series, reason, refused: finite, samples: finite });
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Problem> {
        if self.samples <= MAX_SAMPLES {
            return Ok(());
        }
        let detail = format!("the request has more than {MAX_SAMPLES} samples: send fewer at once");
        Err(Problem::too_large(detail))
    }

    /// The series `index` for an answer; empty if its labels cannot be read.
    pub(super) fn name(&self, index: usize) -> String {
        self.series.labels(index).map_or_else(|_| String::new(), |labels| shortened(as_promql(&labels)))
    }
}

/// A series is written as labels in a `prometheus.TimeSeries`.
static NOTATION: Notation = Notation { mark: b'p', labels: labels_of, name: as_promql };

/// The contents of the fields of `message` with this tag, which are messages.
fn messages(message: &[u8], tag: u64) -> impl Iterator<Item = Result<&[u8], Unreadable>> {
    Fields(message).filter_map(move |field| match field {
        Err(Unreadable) => Some(Err(Unreadable)),
        Ok(field) if field.tag != tag => None,
        Ok(field) => match field.content {
            Content::Bytes(bytes) => Some(Ok(bytes)),
            _ => Some(Err(Unreadable)),
        },
    })
}

fn read_sample(bytes: &[u8]) -> Result<Sample, Unreadable> {
    let mut sample = Sample::default();
    for field in Fields(bytes) {
        let field = field?;
        match (field.tag, field.content) {
            (1, Content::Fixed(bits)) => sample.value = f64::from_bits(bits),
            (2, Content::Number(millis)) => sample.timestamp = millis as i64,
            (1 | 2, _) => return Err(Unreadable),
            _ => {}
        }
    }
    Ok(sample)
}

/// The symbols of an `io.prometheus.write.v2.Request`, in place.
fn read_symbols(message: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let symbols: Result<Vec<_>, _> = messages(message, 4).take(MAX_SYMBOLS + 1).collect();
    let symbols = symbols.map_err(|Unreadable| unreadable(VERSION_2))?;
    if symbols.len() > MAX_SYMBOLS {
        let detail = format!("the request has more than {MAX_SYMBOLS} symbols: send fewer series at once");
        return Err(Problem::too_large(detail));
    }
    Ok(symbols)
}

/// Writes a label as a `prometheus.TimeSeries` has it.
fn write_label(key: &mut SeriesKeys, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    let (before_name, before_value) = (begin_of_field(1, name.len()), begin_of_field(2, value.len()));
    let length = before_name.len() + name.len() + before_value.len() + value.len();
    key.write(&[&begin_of_field(1, length), &before_name, name, &before_value, value])
}

/// Tag and length of a field of `length` bytes.
fn begin_of_field(tag: u8, length: usize) -> Vec<u8> {
    let mut written = vec![tag << 3 | 2];
    // There is room in memory.
    let _ = prost::encode_length_delimiter(length, &mut written);
    written
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

/// A body that is compressed by snappy, of at most `most` bytes without that.
pub(super) fn decompressed(body: &[u8], most: usize) -> Result<Vec<u8>, Problem> {
    let bytes = snap::raw::decompress_len(body).map_err(|_| unreadable("compressed by snappy"))?;
    if bytes > most {
        return Err(Problem::too_large(format!("the decompressed body is larger than {most} bytes")));
    }
    let message = snap::raw::Decoder::new().decompress_vec(body);
    message.map_err(|_| unreadable("compressed by snappy"))
}

/// The labels that are `written`. A label with an empty value is left out, as everywhere in Prometheus.
fn labels_of(written: &[u8]) -> Result<Labels, &'static str> {
    let series = TimeSeries::decode(written).map_err(|_| "its labels cannot be read")?;
    let text = |bytes| String::from_utf8(bytes).map_err(|_| "its labels are not UTF-8");
    let mut labels = Labels::new();
    for Label { name, value } in series.labels {
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
mod tests;
