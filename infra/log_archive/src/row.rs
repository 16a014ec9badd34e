use std::collections::HashMap;

use serde_json::value::RawValue;

/// How a column stands in a line of JSON and in a line of `COPY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// It holds JSON: a text in it is a JSON text.
    pub(crate) is_json: bool,
}

/// Appends the row in `line` to `copy`, in the text format of `COPY`.
pub(crate) fn push_row(copy: &mut Vec<u8>, line: &[u8], columns: &[Column]) -> Result<(), serde_json::Error> {
    let row: HashMap<&str, &RawValue> = serde_json::from_slice(line)?;
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            copy.push(b'\t');
        }
        match row.get(column.name.as_str()).map(|value| value.get()) {
            None => copy.extend_from_slice(b"\\N"),
            // No JSON column in an archive is nullable, so `null` is the JSON value.
            Some("null") if !column.is_json => copy.extend_from_slice(b"\\N"),
            // An array of numbers, which PostgreSQL writes in braces.
            Some(value) if !column.is_json && value.starts_with('[') => {
                push_escaped(copy, &value.replace('[', "{").replace(']', "}"));
            }
            Some(value) if column.is_json || !value.starts_with('"') => push_escaped(copy, value),
            Some(text) if text.contains('\\') => push_escaped(copy, &serde_json::from_str::<String>(text)?),
            Some(text) => push_escaped(copy, &text[1..text.len() - 1]),
        }
    }
    copy.push(b'\n');
    Ok(())
}

fn push_escaped(copy: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'\\' => copy.extend_from_slice(b"\\\\"),
            b'\n' => copy.extend_from_slice(b"\\n"),
            b'\r' => copy.extend_from_slice(b"\\r"),
            b'\t' => copy.extend_from_slice(b"\\t"),
            byte => copy.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_a_line_of_copy() {
        let columns = [
            ("n", false),
            ("text", false),
            ("doc", true),
            ("word", true),
            ("no", false),
            ("gone", true),
            ("list", false),
        ];
        let columns = columns.map(|(name, is_json)| Column { name: name.to_owned(), is_json });
        let line =
            br#"{"n":7,"text":"a\tb\\c","doc":{"x": "q\n"},"word":"w","no":null,"more":1,"list":[1,7]}"#;
        let mut copy = Vec::new();
        push_row(&mut copy, line, &columns).unwrap();
        let expected = "7\ta\\tb\\\\c\t{\"x\": \"q\\\\n\"}\t\"w\"\t\\N\t\\N\t{1,7}\n";
        assert_eq!(String::from_utf8(copy).unwrap(), expected);
        assert!(push_row(&mut Vec::new(), b"[1]", &columns).is_err());
    }
}
