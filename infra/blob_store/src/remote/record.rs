use serde::{Deserialize, Serialize};
use signalbox_domain::kernel::Sha256Hex;
use uuid::Uuid;

/// The stored state of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The complete file.
    pub(super) whole: Option<Whole>,
    /// The part of an upload that is in progress or was interrupted.
    pub(super) part: Option<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whole {
    pub(super) sha256: Sha256Hex,
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// The upload that may add to it.
    pub(super) writer: Uuid,
    pub(super) runs: Vec<Run>,
}

/// Segments of equal size, written one after the other by one upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    writer: Uuid,
    /// Number of the first one.
    first: u32,
    count: u32,
    /// Of each.
    bytes: u64,
}

/// A range of a file that is one object in the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) writer: Uuid,
    /// Counted by its writer.
    pub(super) number: u32,
    pub(super) bytes: u64,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        format!("{}.{:06}", self.writer.simple(), self.number)
    }

    /// The writer in the name of a segment.
    pub(super) fn writer_of(name: &str) -> Option<Uuid> {
        name.split_once('.').and_then(|(writer, _)| Uuid::try_parse(writer).ok())
    }
}

impl Whole {
    pub(super) fn size(&self) -> u64 {
        size(&self.runs)
    }
}

impl Part {
    pub(super) fn size(&self) -> u64 {
        size(&self.runs)
    }
}

impl Record {
    /// All segments that it names.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> {
        let whole = self.whole.as_ref().map_or(&[][..], |whole| &whole.runs);
        let part = self.part.as_ref().map_or(&[][..], |part| &part.runs);
        segments(whole).chain(segments(part))
    }

    /// The upload that may be writing segments which it does not name yet.
    pub(super) fn writer(&self) -> Option<Uuid> {
        self.part.as_ref().map(|part| part.writer)
    }
}

pub(super) fn size(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count) * run.bytes).sum()
}

/// The segments of `runs`, in order.
pub(super) fn segments(runs: &[Run]) -> impl Iterator<Item = Segment> {
    runs.iter().flat_map(|run| {
        let numbers = run.first..run.first.saturating_add(run.count);
        numbers.map(|number| Segment { writer: run.writer, number, bytes: run.bytes })
    })
}

/// `runs` followed by `segment`.
pub(super) fn extended(mut runs: Vec<Run>, segment: &Segment) -> Vec<Run> {
    match runs.last_mut() {
        Some(last)
            if (last.writer, last.bytes) == (segment.writer, segment.bytes)
                && last.first + last.count == segment.number =>
        {
            last.count += 1;
        }
        _ => runs.push(Run { writer: segment.writer, first: segment.number, count: 1, bytes: segment.bytes }),
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_come_back_in_order_and_equal_ones_are_one_run() {
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let written: Vec<_> = [(first, 0, 8), (first, 1, 8), (first, 2, 3), (second, 0, 8), (second, 1, 8)]
            .map(|(writer, number, bytes)| Segment { writer, number, bytes })
            .into();
        let runs = written.iter().fold(Vec::new(), extended);
        assert_eq!(runs.len(), 3);
        assert_eq!(size(&runs), 35);
        assert_eq!(segments(&runs).collect::<Vec<_>>(), written);
    }

    #[test]
    fn a_record_of_today_can_be_read_for_ever() {
        let text = r#"{"whole":{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "runs":[{"writer":"00000000-0000-0000-0000-000000000001","first":0,"count":2,"bytes":8}]},"part":null}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        let names: Vec<_> = record.segments().map(|segment| segment.name()).collect();
        let writer = "00000000000000000000000000000001";
        assert_eq!(names, [format!("{writer}.000000"), format!("{writer}.000001")]);
        assert_eq!(Segment::writer_of(&names[0]), Some(Uuid::from_u128(1)));
        assert_eq!(Segment::writer_of("record"), None);
    }
}
