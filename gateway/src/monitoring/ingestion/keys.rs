//! How requests name their series: by bytes, of which labels are made when no channel is known for them.

use signalbox_domain::monitoring::Labels;

/// How a way in writes series.
#[derive(Debug)]
pub(crate) struct Notation {
    /// Distinguishes its bytes from those of others.
    pub(crate) mark: u8,
    /// The labels that bytes stand for, always the same for the same bytes; or what is wrong with them.
    pub(crate) labels: fn(&[u8]) -> Result<Labels, &'static str>,
    /// Gives a channel that is made for these labels its name.
    pub(crate) name: fn(&Labels) -> String,
}

/// The series of a request.
#[derive(Debug)]
pub(crate) struct SeriesKeys {
    pub(super) notation: &'static Notation,
    /// The keys, one behind the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl SeriesKeys {
    pub(crate) fn new(notation: &'static Notation) -> Self {
        Self { notation, bytes: vec![notation.mark], ends: Vec::new() }
    }

    /// Adds bytes to the name of the next series.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the name of a series; returns the index of that.
    pub(crate) fn end(&mut self) -> usize {
        self.ends.push(self.bytes.len());
        self.bytes.push(self.notation.mark);
        self.ends.len() - 1
    }

    /// Forgets what was added to the name of the next series.
    pub(crate) fn discard(&mut self) {
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end) + 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The key of the series `index`.
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[index]]
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.key(index))
    }

    /// The labels of the series `index`.
    pub(crate) fn labels(&self, index: usize) -> Result<Labels, &'static str> {
        (self.notation.labels)(&self.key(index)[1..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAIN: Notation = Notation {
        mark: b'!',
        labels: |key| {
            std::str::from_utf8(key)
                .map(|key| [(key.to_owned(), String::new())].into())
                .map_err(|_| "no text")
        },
        name: |_| String::new(),
    };

    #[test]
    fn keys_are_those_that_were_written() {
        let mut keys = SeriesKeys::new(&PLAIN);
        keys.write(b"lost");
        keys.discard();
        keys.write(b"a");
        keys.write(b"b");
        assert_eq!((keys.end(), keys.end()), (0, 1));
        keys.write(b"lost");
        keys.discard();
        keys.write(b"\xff");
        assert_eq!((keys.end(), keys.len()), (2, 3));
        assert_eq!(keys.keys().collect::<Vec<_>>(), [&b"!ab"[..], b"!", b"!\xff"]);
        assert_eq!(keys.labels(0), Ok([("ab".to_owned(), String::new())].into()));
        assert_eq!(keys.labels(2), Err("no text"));
    }
}
