//! One line: `measurement[,tag=value…] field=value[,field=value…] [time]`. Commas, spaces and `=` in names and tags are escaped by
//! a backslash; texts stand in quotes.

use std::borrow::Cow;

/// The part of a line that names the series of its values, together with the fields.
#[derive(Debug, PartialEq)]
pub(super) struct Head<'a> {
    pub(super) measurement: Cow<'a, str>,
    pub(super) tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Field {
    /// Finite.
    Number(f64),
    /// No channel can hold it.
    Text,
}

/// The fault of a line, in InfluxDB's words where it has some.
pub(super) type Fault = &'static str;

/// Tags and fields of a line at most; far more than labels of a channel, which are checked later.
const MAX_TAGS: usize = 256;
const MAX_FIELDS: usize = 10_000;

const OF_HEADS: &[u8] = b" ";
const OF_MEASUREMENTS: &[u8] = b", ";
const OF_KEYS: &[u8] = b"=, ";

/// The first line of `body`, and the rest. A text in quotes may hold line breaks; if its quote is never closed, the line ends at
/// the first break, so that it is the only one that is refused.
pub(super) fn split_line(body: &[u8]) -> (&[u8], &[u8]) {
    let (mut in_fields, mut in_quotes, mut after_equals) = (false, false, false);
    let mut first_break = None;
    let mut index = 0;
    while let Some(byte) = body.get(index) {
        match byte {
            b'\\' if body.get(index + 1).is_some_and(|next| *next != b'\n') => index += 1,
            b'\n' if !in_quotes => return (&body[..index], &body[index + 1..]),
            b'\n' => first_break = first_break.or(Some(index)),
            b'"' if in_quotes => (in_quotes, first_break) = (false, None),
            b'"' if in_fields && after_equals => in_quotes = true,
            b' ' if !in_quotes => in_fields = true,
            _ => {}
        }
        after_equals = *byte == b'=' && !in_quotes;
        index += 1;
    }
    match first_break.filter(|_| in_quotes) {
        Some(index) => (&body[..index], &body[index + 1..]),
        None => (body, &[]),
    }
}

/// Measurement and tags of a line as they are written, and the rest.
pub(super) fn split_head(line: &str) -> (&str, &str) {
    let (head, _, rest) = cut(line, OF_HEADS);
    (head, rest)
}

/// Parses measurement and tags.
pub(super) fn parse_head(head: &str) -> Result<Head<'_>, Fault> {
    let (measurement, mut end, mut rest) = cut(head, OF_MEASUREMENTS);
    if measurement.is_empty() {
        return Err("missing measurement");
    }
    let mut tags = Vec::new();
    while end == Some(b',') {
        let (key, after_key, value) = cut(rest, OF_KEYS);
        let (value, after_value, after) = cut(value, OF_KEYS);
        if tags.len() == MAX_TAGS {
            return Err("too many tags");
        }
        match (after_key, after_value) {
            _ if key.is_empty() => return Err("missing tag key"),
            (Some(b'='), Some(b'=')) => return Err("invalid tag format"),
            (Some(b'='), _) if !value.is_empty() => {}
            _ => return Err("missing tag value"),
        }
        tags.push((unescaped(key, OF_KEYS), unescaped(value, OF_KEYS)));
        (end, rest) = (after_value, after);
    }
    Ok(Head { measurement: unescaped(measurement, OF_MEASUREMENTS), tags })
}

/// Adds the fields behind a head to `fields`, with their names as they are written. Returns the line's time, in units of the request's
/// precision since 1970.
pub(super) fn parse_fields<'a>(
    rest: &'a str,
    fields: &mut Vec<(&'a str, Field)>,
) -> Result<Option<i64>, Fault> {
    let mut rest = rest.trim_start_matches(' ');
    if rest.is_empty() {
        return Err("missing fields");
    }
    loop {
        let (key, after_key, value) = cut(rest, OF_KEYS);
        if key.is_empty() {
            return Err("missing field key");
        }
        if after_key != Some(b'=') {
            return Err("missing field value");
        }
        if fields.len() == MAX_FIELDS {
            return Err("too many fields");
        }
        let (field, after_value, after) = take_field(value)?;
        fields.push((key, field));
        rest = after;
        if after_value != Some(b',') {
            break;
        }
    }
    match rest.trim_matches(' ') {
        "" => Ok(None),
        time => time.parse().map(Some).map_err(|_| "bad timestamp"),
    }
}

/// The name of a field without its escapes.
pub(super) fn field_name(written: &str) -> Cow<'_, str> {
    unescaped(written, OF_KEYS)
}

/// `text` up to the first of `ends` that is not escaped, that end, and what is behind it.
fn cut<'a>(text: &'a str, ends: &[u8]) -> (&'a str, Option<u8>, &'a str) {
    let bytes = text.as_bytes();
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        match byte {
            b'\\' => index += 2,
            byte if ends.contains(byte) => return (&text[..index], Some(*byte), &text[index + 1..]),
            _ => index += 1,
        }
    }
    (text, None, "")
}

/// `text` without the backslashes that escape one of `ends`; other backslashes stand for themselves.
fn unescaped<'a>(text: &'a str, ends: &[u8]) -> Cow<'a, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        let is_end = |next: &char| u8::try_from(*next).is_ok_and(|next| ends.contains(&next));
        let escaped = rest.peek().copied().filter(is_end).filter(|_| letter == '\\');
        if escaped.is_some() {
            rest.next();
        }
        out.push(escaped.unwrap_or(letter));
    }
    Cow::Owned(out)
}

/// The value at the beginning of `text`, what ends it, and what is behind that.
fn take_field(text: &str) -> Result<(Field, Option<u8>, &str), Fault> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, end, rest) = cut(text, OF_MEASUREMENTS);
        return Ok((Field::Number(number(value)?), end, rest));
    };
    let (_, end, rest) = cut(quoted, b"\"");
    if end.is_none() {
        return Err("unbalanced quotes");
    }
    match rest.bytes().next() {
        None => Ok((Field::Text, None, rest)),
        Some(end) if OF_MEASUREMENTS.contains(&end) => Ok((Field::Text, Some(end), &rest[1..])),
        Some(_) => Err("invalid field format"),
    }
}

/// A float, an integer with `i` or `u` at its end, or a boolean.
fn number(text: &str) -> Result<f64, Fault> {
    match text {
        "" => return Err("missing field value"),
        "t" | "T" | "true" | "True" | "TRUE" => return Ok(1.0),
        "f" | "F" | "false" | "False" | "FALSE" => return Ok(0.0),
        _ => {}
    }
    let integer = |number: Option<f64>| number.ok_or("invalid integer");
    if let Some(digits) = text.strip_suffix('i') {
        return integer(digits.parse::<i64>().ok().map(|number| number as f64));
    }
    if let Some(digits) = text.strip_suffix('u') {
        return integer(digits.parse::<u64>().ok().map(|number| number as f64));
    }
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number = text.parse::<f64>().ok().filter(|number| is_plain && number.is_finite());
    number.ok_or("invalid number")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line<'a> {
        measurement: Cow<'a, str>,
        tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
        fields: Vec<(&'a str, Field)>,
        time: Option<i64>,
    }

    fn parse(line: &str) -> Result<Line<'_>, Fault> {
        let (head, rest) = split_head(line);
        let Head { measurement, tags } = parse_head(head)?;
        let mut fields = Vec::new();
        let time = parse_fields(rest, &mut fields)?;
        Ok(Line { measurement, tags, fields, time })
    }

    fn numbers(line: &str) -> Vec<f64> {
        let fields = parse(line).unwrap().fields;
        let number = |(_, field)| if let Field::Number(number) = field { number } else { f64::NAN };
        fields.into_iter().map(number).collect()
    }

    fn tags<'a>(line: &'a Line<'_>) -> Vec<(&'a str, &'a str)> {
        line.tags.iter().map(|(key, value)| (&**key, &**value)).collect()
    }

    fn lines(mut body: &[u8]) -> Vec<&str> {
        let mut found = Vec::new();
        while !body.is_empty() {
            let (line, rest) = split_line(body);
            found.push(std::str::from_utf8(line).unwrap());
            body = rest;
        }
        found
    }

    #[test]
    fn a_line_has_measurement_tags_fields_and_time() {
        let line = parse("cpu,host=a,core=1 user=1.5,system=2i 1556813561098000000").unwrap();
        assert_eq!(line.measurement, "cpu");
        assert_eq!(tags(&line), [("host", "a"), ("core", "1")]);
        assert_eq!(line.fields, [("user", Field::Number(1.5)), ("system", Field::Number(2.0))]);
        assert_eq!(line.time, Some(1_556_813_561_098_000_000));
        let bare = parse("cpu value=1").unwrap();
        assert_eq!((bare.tags.len(), bare.time), (0, None));
        assert_eq!(parse("cpu  value=1  -5 ").unwrap().time, Some(-5));
    }

    #[test]
    fn escaped_letters_stand_for_themselves() {
        let broken = r"disk\ usage\,all,mount\ point=C:\\a\=b,städte=Köln\, Süd used\ part=1";
        assert_eq!(
            parse(broken).err(),
            Some("missing field value"),
            "a space that is not escaped ends the tags"
        );
        let line = parse(r"disk\ usage\,all,mount\ point=C:\a\=b,ort=Köln\,\ Süd used\ part=1").unwrap();
        assert_eq!(line.measurement, "disk usage,all");
        assert_eq!(tags(&line), [("mount point", r"C:\a=b"), ("ort", "Köln, Süd")]);
        assert_eq!(field_name(line.fields[0].0), "used part");
    }

    #[test]
    fn values_are_numbers_booleans_and_texts() {
        assert_eq!(
            numbers("m a=1,b=-1.5e3,c=.5,d=1i,e=-2i,f=3u,g=t,h=False"),
            [1.0, -1500.0, 0.5, 1.0, -2.0, 3.0, 1.0, 0.0]
        );
        assert_eq!(
            numbers("m a=9007199254740993i,b=18446744073709551615u"),
            [9_007_199_254_740_992.0, 18_446_744_073_709_551_615.0]
        );
        let line = parse(r#"m a="x, y=\"1\" ",b=2 7"#).unwrap();
        assert_eq!(line.fields, [("a", Field::Text), ("b", Field::Number(2.0))]);
        assert_eq!(line.time, Some(7));
    }

    #[test]
    fn broken_lines_name_their_fault() {
        for (line, fault) in [
            ("", "missing measurement"),
            (",a=1 v=1", "missing measurement"),
            ("m", "missing fields"),
            ("m ", "missing fields"),
            ("m,a=1", "missing fields"),
            ("m,=1 v=1", "missing tag key"),
            ("m, v=1", "missing tag key"),
            ("m,a v=1", "missing tag value"),
            ("m,a= v=1", "missing tag value"),
            ("m,a=b=c v=1", "invalid tag format"),
            ("m v", "missing field value"),
            ("m v=", "missing field value"),
            ("m v=1,", "missing field key"),
            ("m =1", "missing field key"),
            ("m v=NaN", "invalid number"),
            ("m v=inf", "invalid number"),
            ("m v=1e999", "invalid number"),
            ("m v=0x10", "invalid number"),
            ("m v=text", "invalid number"),
            ("m v=9223372036854775808i", "invalid integer"),
            ("m v=-1u", "invalid integer"),
            ("m v=1.5i", "invalid integer"),
            ("m v=1 soon", "bad timestamp"),
            ("m v=1 1.5", "bad timestamp"),
            ("m v=1 99999999999999999999", "bad timestamp"),
            ("m v=\"x", "unbalanced quotes"),
            ("m v=\"x\"y", "invalid field format"),
        ] {
            assert_eq!(parse(line).err(), Some(fault), "{line}");
        }
    }

    #[test]
    fn a_text_may_hold_line_breaks() {
        assert_eq!(lines(b"m a=1\nm b=\"x\ny\",c=1\nm d=1"), ["m a=1", "m b=\"x\ny\",c=1", "m d=1"]);
        assert_eq!(lines(b"m\\\nx a=1\n\nm b=1\n"), ["m\\", "x a=1", "", "m b=1"]);
    }

    #[test]
    fn an_open_quote_ends_with_its_line() {
        assert_eq!(lines(b"m a=\"x\nm b=1\nm c=1"), ["m a=\"x", "m b=1", "m c=1"]);
        assert_eq!(lines(b"m,t=\"x a=1\nm b=1"), ["m,t=\"x a=1", "m b=1"]);
    }
}
