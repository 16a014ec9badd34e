//! The lines of a request as values of series.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
};

use chrono::{DateTime, Utc};
use signalbox_domain::monitoring::Labels;

use super::line::{Field, Head, field_name, parse_fields, parse_head, split_head, split_line};
use crate::{
    monitoring::ingestion::{Notation, SeriesKeys, SeriesValue},
    problem::Problem,
};

/// Bytes of a request's lines at most, decompressed.
pub(super) const MAX_BYTES: usize = 16 << 20;
/// Lines of a request, and values in them, at most.
const MAX_LINES: usize = 100_000;
/// Series of a request at most.
const MAX_SERIES: usize = 20_000;

/// The unit of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
}

impl Precision {
    /// The unit that a client calls `word`.
    pub(super) fn named(word: Option<&str>) -> Option<Self> {
        Some(match word {
            None | Some("" | "ns" | "n") => Self::Nanoseconds,
            Some("us" | "u" | "µ") => Self::Microseconds,
            Some("ms") => Self::Milliseconds,
            Some("s") => Self::Seconds,
            Some("m") => Self::Minutes,
            Some("h") => Self::Hours,
            Some(_) => return None,
        })
    }

    /// The moment `units` after 1970, to the microsecond; `None` if no calendar has it.
    fn moment(self, units: i64) -> Option<DateTime<Utc>> {
        const SECOND: i64 = 1_000_000;
        let micros = match self {
            Self::Nanoseconds => Some(units.div_euclid(1000)),
            Self::Microseconds => Some(units),
            Self::Milliseconds => units.checked_mul(1000),
            Self::Seconds => units.checked_mul(SECOND),
            Self::Minutes => units.checked_mul(60 * SECOND),
            Self::Hours => units.checked_mul(3600 * SECOND),
        };
        micros.and_then(DateTime::from_timestamp_micros)
    }
}

/// The lines of a request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) series: SeriesKeys,
    pub(super) values: Vec<SeriesValue>,
    /// Number of the line of each value, from 1.
    pub(super) lines_of_values: Vec<usize>,
    /// Lines that are neither empty nor comments.
    pub(super) lines: usize,
    /// Fields that hold a text.
    pub(super) texts: u64,
    /// Numbers of lines that are not written, in order, and why.
    pub(super) faults: Vec<(usize, &'static str)>,
}

impl Batch {
    /// Reads the lines of `body`.
    pub(super) fn read(mut body: &[u8], precision: Precision) -> Result<Self, Problem> {
        let mut batch = Self {
            series: SeriesKeys::new(&NOTATION),
            values: Vec::new(),
            lines_of_values: Vec::new(),
            lines: 0,
            texts: 0,
            faults: Vec::new(),
        };
        let mut known = Known::default();
        let mut number = 0;
        while !body.is_empty() {
            let (line, rest) = split_line(body);
            number += 1;
            let next = number + line.iter().filter(|byte| **byte == b'\n').count();
            body = rest;
            let line = line.trim_ascii();
            if !line.is_empty() && !line.starts_with(b"#") {
                batch.lines += 1;
                if let Err(fault) = batch.add(line, number, precision, &mut known) {
                    batch.faults.push((number, fault));
                }
            }
            number = next;
            if batch.lines > MAX_LINES || batch.values.len() > MAX_LINES {
                let detail =
                    format!("the body has more than {MAX_LINES} lines or values: send fewer at once");
                return Err(Problem::too_large(detail));
            }
        }
        Ok(batch)
    }

    /// Indexes of the values of a line.
    pub(super) fn values_of(&self, line: usize) -> Range<usize> {
        let begin = self.lines_of_values.partition_point(|of| *of < line);
        begin..self.lines_of_values.partition_point(|of| *of <= line)
    }

    /// The name of the field that the value at `index` has.
    pub(super) fn field(&self, index: usize) -> Option<String> {
        self.series.labels(self.values[index].series).ok()?.get(FIELD).cloned()
    }

    fn add<'a>(
        &mut self,
        line: &'a [u8],
        number: usize,
        precision: Precision,
        known: &mut Known<'a>,
    ) -> Result<(), &'static str> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
        let (head, rest) = split_head(text);
        let of_head = match known.heads.entry(head) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                parse_head(head)?;
                entry.insert(OfHead::default())
            }
        };
        known.fields.clear();
        let time = match parse_fields(rest, &mut known.fields)? {
            None => None,
            Some(units) => Some(precision.moment(units).ok_or("its time is outside of 1970 to 9999")?),
        };
        let before = self.values.len();
        let mut texts = 0;
        for (place, (field, value)) in known.fields.iter().enumerate() {
            let Field::Number(value) = *value else {
                texts += 1;
                continue;
            };
            let series = match of_head.series(place, field) {
                Some(series) => series,
                None => match add_series(&mut self.series, head, field) {
                    Ok(series) => of_head.add(field, series),
                    Err(fault) => {
                        self.values.truncate(before);
                        return Err(fault);
                    }
                },
            };
            self.values.push(SeriesValue { series, time, value });
        }
        self.lines_of_values.resize(self.values.len(), number);
        self.texts += texts;
        Ok(())
    }
}

/// The series of the lines before.
#[derive(Default)]
struct Known<'a> {
    /// By measurement and tags as they are written.
    heads: HashMap<&'a str, OfHead<'a>>,
    /// The fields of one line.
    fields: Vec<(&'a str, Field)>,
}

/// Series with the same head, by the names of their fields as they are written.
#[derive(Default)]
struct OfHead<'a> {
    /// In the order of the first line, which is that of most others.
    in_order: Vec<(&'a str, usize)>,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> OfHead<'a> {
    fn series(&self, place: usize, field: &str) -> Option<usize> {
        match self.in_order.get(place) {
            Some((name, series)) if *name == field => Some(*series),
            _ => self.by_name.get(field).copied(),
        }
    }

    fn add(&mut self, field: &'a str, series: usize) -> usize {
        self.in_order.push((field, series));
        self.by_name.insert(field, series);
        series
    }
}

/// Names another series, and returns its index.
fn add_series(series: &mut SeriesKeys, head: &str, field: &str) -> Result<usize, &'static str> {
    if series.len() == MAX_SERIES {
        return Err("the request has too many series before it");
    }
    series.write(&[head.as_bytes(), b" ", field.as_bytes()])?;
    Ok(series.end())
}

/// A series is written as in its lines: measurement, tags, a space and the name of the field.
static NOTATION: Notation = Notation { mark: b'l', labels: labels_of, name };

fn labels_of(written: &[u8]) -> Result<Labels, &'static str> {
    let text = std::str::from_utf8(written).map_err(|_| "it is not UTF-8")?;
    let (head, field) = split_head(text);
    let head = parse_head(head)?;
    let mut labels = labels_of_tags(&head)?;
    labels.insert(MEASUREMENT.to_owned(), head.measurement.into_owned());
    labels.insert(FIELD.to_owned(), field_name(field).into_owned());
    Ok(labels)
}

/// Tags as labels. Other characters of a key than letters, digits and `_` become `_`.
fn labels_of_tags(head: &Head<'_>) -> Result<Labels, &'static str> {
    let mut labels = Labels::new();
    for (key, value) in &head.tags {
        let as_label = |(index, letter): (usize, char)| {
            let is_kept =
                letter == '_' || letter.is_ascii_alphabetic() || (index > 0 && letter.is_ascii_digit());
            if is_kept { letter } else { '_' }
        };
        let key: String = key.chars().enumerate().map(as_label).collect();
        if key == MEASUREMENT || key == FIELD {
            return Err(
                "a tag has the key of a label that the line's measurement or field has: _measurement or _field",
            );
        }
        if labels.insert(key, value.clone().into_owned()).is_some() {
            return Err("two of its tags have the same key as labels, where other characters are _");
        }
    }
    Ok(labels)
}

const MEASUREMENT: &str = "_measurement";
const FIELD: &str = "_field";

/// Name of a channel for a series: `measurement.field{tag=value,…}`.
fn name(labels: &Labels) -> String {
    let of = |key: &str| labels.get(key).map_or("", String::as_str);
    let mut name = format!("{}.{}", of(MEASUREMENT), of(FIELD));
    let tags = labels.iter().filter(|(key, _)| ![MEASUREMENT, FIELD].contains(&key.as_str()));
    let pairs: Vec<_> = tags.map(|(key, value)| format!("{key}={value}")).collect();
    if !pairs.is_empty() {
        name.push_str(&format!("{{{}}}", pairs.join(",")));
    }
    name
}

#[cfg(test)]
mod tests {

    use super::*;

    fn read(body: &str) -> Batch {
        Batch::read(body.as_bytes(), Precision::Seconds).unwrap()
    }

    fn names(batch: &Batch) -> Vec<String> {
        (0..batch.series.len()).map(|index| name(&batch.series.labels(index).unwrap())).collect()
    }

    #[test]
    fn lines_of_the_same_series_share_it() {
        let batch =
            read("cpu,host=a user=1,system=2 1\n# comment\n\ncpu,host=a user=3 2\r\ncpu,host=b user=4 3\n");
        assert_eq!(names(&batch), ["cpu.user{host=a}", "cpu.system{host=a}", "cpu.user{host=b}"]);
        let values: Vec<_> = batch.values.iter().map(|value| (value.series, value.value)).collect();
        assert_eq!(values, [(0, 1.0), (1, 2.0), (0, 3.0), (2, 4.0)]);
        assert_eq!(batch.lines_of_values, [1, 1, 4, 5]);
        assert_eq!((batch.lines, batch.faults.len()), (3, 0));
        let labels = [("_field", "user"), ("_measurement", "cpu"), ("host", "a")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(batch.series.labels(0), Ok(labels.into()));
    }

    #[test]
    fn keys_of_tags_become_keys_of_labels() {
        let batch = read("m,host.name=a,1st=b,größe=c v=1\nm v=2");
        assert_eq!(names(&batch), ["m.v{_st=b,gr__e=c,host_name=a}", "m.v"]);
        let batch = read("m,host.name=a,host-name=b v=1\nm,_field=x v=1\nm,a=1,a=1 v=1\nm v=1");
        let is_wrong = |index| batch.series.labels(index).is_err();
        assert_eq!([0, 1, 2, 3].map(is_wrong), [true, true, true, false]);
        assert_eq!(batch.lines_of_values, [1, 2, 3, 4]);
    }

    #[test]
    fn names_of_fields_are_read_as_they_are_written() {
        let batch = read("a\\ b,x=\\ c d\\,e=1,f=2\na\\ b,x=\\ c f=3,d\\,e=4,g\\ h=5");
        assert_eq!(names(&batch), ["a b.d,e{x= c}", "a b.f{x= c}", "a b.g h{x= c}"]);
        assert_eq!(batch.values.iter().map(|value| value.series).collect::<Vec<_>>(), [0, 1, 1, 0, 2]);
    }

    #[test]
    fn a_broken_line_is_the_only_one_that_is_refused() {
        let batch = read("m v=1\nm v=\nm t=\"a\nb\",v=2\nm v=3 soon\nm v=4\nm v=\"open\nm v=5");
        let faults = [(2, "missing field value"), (5, "bad timestamp"), (7, "unbalanced quotes")];
        assert_eq!(batch.faults, faults);
        assert_eq!((batch.lines, batch.values.len()), (7, 4));
    }

    #[test]
    fn texts_are_counted_and_left_out() {
        let batch = read("m t=\"x\",v=1\nm t=\"y\"");
        assert_eq!((batch.texts, batch.values.len(), batch.faults.len()), (2, 1, 0));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_refused_line_by_line() {
        let batch = Batch::read(b"m v=1\nm,a=\xff v=1\nm v=2", Precision::Seconds).unwrap();
        assert_eq!((batch.faults, batch.values.len()), (vec![(2, "it is not UTF-8")], 2));
    }

    #[test]
    fn times_have_the_unit_of_the_request() {
        let micros = |word: &str, units| {
            let moment = Precision::named(Some(word)).unwrap().moment(units);
            moment.map(|moment| moment.timestamp_micros())
        };
        assert_eq!(micros("ns", 1_999), Some(1));
        assert_eq!(micros("ns", -1), Some(-1));
        assert_eq!(micros("u", 5), Some(5));
        assert_eq!(micros("ms", 5), Some(5_000));
        assert_eq!(micros("s", 5), Some(5_000_000));
        assert_eq!(micros("m", 5), Some(300_000_000));
        assert_eq!(micros("h", 5), Some(18_000_000_000));
        assert_eq!(micros("s", i64::MAX), None);
        assert_eq!(Precision::named(Some("week")), None);
        assert_eq!(read("m v=1 9223372036854775807").faults.len(), 1);
    }

    #[test]
    fn of_a_line_with_too_many_series_nothing_is_taken() {
        let fields = |first: usize, count: usize| -> String {
            let fields: Vec<_> = (first..first + count).map(|number| format!("f{number}=1")).collect();
            format!("m {}\n", fields.join(","))
        };
        let batch =
            read(&[fields(0, 9999), fields(9999, 9999), fields(19_998, 3), "m f1=1".to_owned()].concat());
        assert_eq!(batch.faults, [(3, "the request has too many series before it")]);
        assert_eq!((batch.values.len(), batch.lines_of_values.len()), (19_999, 19_999));
        assert_eq!(batch.lines_of_values.last(), Some(&4));
    }

    #[test]
    fn of_a_line_with_too_long_labels_nothing_is_taken() {
        let fields: Vec<_> = (0..10_000).map(|number| format!("f{number}=1")).collect();
        let long = |bytes: usize| format!("m,a={} {}\n", "x".repeat(bytes), fields.join(","));
        let batch = read(&[long(15 << 20), "m v=1\n".to_owned(), long(60 << 10)].concat());
        assert_eq!(batch.faults.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((batch.values.len(), batch.lines_of_values.as_slice()), (1, &[2][..]));
    }

    #[test]
    fn too_many_lines_are_refused() {
        let most = "m v=1\n".repeat(MAX_LINES);
        assert_eq!(read(&most).values.len(), MAX_LINES);
        assert!(Batch::read(format!("{most}m v=1").as_bytes(), Precision::Seconds).is_err());
    }
}
