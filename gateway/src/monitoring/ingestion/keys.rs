//! How requests name their series: by bytes, of which labels are made when no channel is known for them.

use signalbox_domain::monitoring::Labels;

/// Bytes of the name of a series at most: a channel's labels, each of their letters escaped, have fewer.
const MAX_NAME: usize = 64 << 10;
/// Bytes of the names of a request together at most. A request may name long labels again and again by a few bytes.
const MAX_NAMES: usize = 32 << 20;

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

    /// Adds `parts` to the name of the next series, which is forgotten if it does not fit: the error says why.
    pub(crate) fn write(&mut self, parts: &[&[u8]]) -> Result<(), &'static str> {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let length = self.bytes.len() - self.begin() + added;
        let fault = if length > MAX_NAME {
            "the labels of its series are longer than any channel's may be"
        } else if self.bytes.len() + added > MAX_NAMES {
            "the labels of the series before it are too long for one request: send fewer series at once"
        } else {
            parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
            return Ok(());
        };
        self.discard();
        Err(fault)
    }

    /// Ends the name of a series; returns the index of that.
    pub(crate) fn end(&mut self) -> usize {
        self.ends.push(self.bytes.len());
        self.bytes.push(self.notation.mark);
        self.ends.len() - 1
    }

    /// Forgets what was added to the name of the next series.
    pub(crate) fn discard(&mut self) {
        self.bytes.truncate(self.begin());
    }

    /// Where the bytes of the next series begin, behind its mark.
    fn begin(&self) -> usize {
        self.ends.last().map_or(0, |end| *end) + 1
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
        keys.write(&[b"lost"]).unwrap();
        keys.discard();
        keys.write(&[b"a"]).unwrap();
        keys.write(&[b"b"]).unwrap();
        assert_eq!((keys.end(), keys.end()), (0, 1));
        keys.write(&[b"lost"]).unwrap();
        keys.discard();
        keys.write(&[b"\xff"]).unwrap();
        assert_eq!((keys.end(), keys.len()), (2, 3));
        assert_eq!(keys.keys().collect::<Vec<_>>(), [&b"!ab"[..], b"!", b"!\xff"]);
        assert_eq!(keys.labels(0), Ok([("ab".to_owned(), String::new())].into()));
        assert_eq!(keys.labels(2), Err("no text"));
    }
    #[test]
    fn names_that_are_too_long_leave_nothing_behind() {
        let mut keys = SeriesKeys::new(&PLAIN);
        let longest = vec![b'x'; MAX_NAME];
        assert!(keys.write(&[b"y", &longest]).is_err());
        keys.write(&[&longest[1..]]).unwrap();
        assert!(keys.write(&[b"xx"]).is_err());
        keys.write(&[b"a"]).unwrap();
        assert_eq!((keys.end(), keys.key(0)), (0, &b"!a"[..]));
        let fitting = MAX_NAMES / (MAX_NAME + 1);
        for _ in 0..fitting {
            keys.write(&[&longest]).unwrap();
            keys.end();
        }
        assert!(keys.write(&[&longest]).unwrap_err().contains("fewer series"));
        assert_eq!(keys.len(), fitting + 1);
        assert!(keys.bytes.len() <= MAX_NAMES);
    }
}
