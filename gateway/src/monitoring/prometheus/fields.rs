//! Fields of messages of Protocol Buffers, read in place. For the messages of which a request has thousands; others are derived.

/// Bytes that are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The contents of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// A number of variable length.
    Number(u64),
    /// A number of eight bytes.
    Fixed(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// A number of four bytes, which no message here has.
    Short,
}

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) tag: u64,
    pub(super) content: Content<'a>,
    /// All bytes of it, the tag included.
    pub(super) written: &'a [u8],
}

/// The fields of a message, in the order in which they are written.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field().ok_or(Unreadable))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<Field<'a>> {
        let whole = self.0;
        let key = self.number()?;
        let content = match key & 7 {
            0 => Content::Number(self.number()?),
            1 => Content::Fixed(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?)),
            2 => {
                let length = self.number()?;
                Content::Bytes(self.bytes(usize::try_from(length).ok()?)?)
            }
            5 => self.bytes(4).map(|_| Content::Short)?,
            _ => return None,
        };
        let tag = key >> 3;
        (tag > 0).then(|| Field { tag, content, written: &whole[..whole.len() - self.0.len()] })
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Seven bits a byte, lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_place() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'a', b'b', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0];
        let fields: Vec<_> = Fields(&bytes).collect::<Result<_, _>>().unwrap();
        let contents: Vec<_> = fields.iter().map(|field| (field.tag, field.content)).collect();
        let expected = [
            (1, Content::Number(150)),
            (2, Content::Bytes(b"ab")),
            (3, Content::Fixed(1)),
            (4, Content::Short),
        ];
        assert_eq!(contents, expected);
        assert_eq!(fields[1].written, &bytes[3..7]);
    }

    #[test]
    fn bytes_that_are_not_fields_are_refused() {
        for bytes in [
            &[0x08][..],
            &[0x08, 0x80],
            &[0x12, 3, b'a'],
            &[0x19, 0],
            &[0x0b],
            &[0x00, 0x00],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ] {
            assert!(Fields(bytes).any(|field| field.is_err()), "{bytes:?}");
        }
    }
}
