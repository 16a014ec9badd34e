//! Labels of list items and headings: "3.", "a)", "IV", "2.1".

/// How a number is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    Decimal,
    DecimalZero,
    LowerLetter,
    UpperLetter,
    LowerRoman,
    UpperRoman,
    /// A bullet, or nothing.
    None,
}

/// The label of a list item or heading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Label {
    #[default]
    Bullet,
    /// A number with a full stop.
    Number(u64),
    /// Anything else, as it is written.
    Written(String),
}

/// Larger numbers are not written as letters or in Roman digits.
const LARGEST: u64 = 4000;
const ROMAN: [(u64, &str); 13] = [
    (1000, "m"),
    (900, "cm"),
    (500, "d"),
    (400, "cd"),
    (100, "c"),
    (90, "xc"),
    (50, "l"),
    (40, "xl"),
    (10, "x"),
    (9, "ix"),
    (5, "v"),
    (4, "iv"),
    (1, "i"),
];

impl Format {
    /// By its name in Word.
    pub(super) fn of_word(name: &str) -> Self {
        match name {
            "bullet" | "none" => Self::None,
            "decimalZero" => Self::DecimalZero,
            "lowerLetter" => Self::LowerLetter,
            "upperLetter" => Self::UpperLetter,
            "lowerRoman" => Self::LowerRoman,
            "upperRoman" => Self::UpperRoman,
            _ => Self::Decimal,
        }
    }

    /// By an example of it, as open documents and web pages name it.
    pub(super) fn of_example(example: &str) -> Self {
        match example {
            "" => Self::None,
            "a" => Self::LowerLetter,
            "A" => Self::UpperLetter,
            "i" => Self::LowerRoman,
            "I" => Self::UpperRoman,
            _ => Self::Decimal,
        }
    }

    /// `number` as it is written.
    pub(super) fn write(self, number: u64) -> String {
        match self {
            Self::None => String::new(),
            Self::DecimalZero => format!("{number:02}"),
            _ if number == 0 || number > LARGEST => number.to_string(),
            Self::Decimal => number.to_string(),
            Self::LowerLetter => letters(number),
            Self::UpperLetter => letters(number).to_uppercase(),
            Self::LowerRoman => roman(number),
            Self::UpperRoman => roman(number).to_uppercase(),
        }
    }
}

impl Label {
    /// Parses the label that is written as `text`.
    pub(super) fn new(text: &str) -> Self {
        let text = text.trim();
        let number = text.strip_suffix('.').filter(|digits| !digits.starts_with('0')).map(str::parse);
        match number {
            _ if text.is_empty() => Self::Bullet,
            Some(Ok(number)) => Self::Number(number),
            _ => Self::Written(text.to_owned()),
        }
    }

    /// The same before `text`.
    pub(super) fn before(&self, text: &str) -> String {
        match self {
            _ if text.trim().is_empty() => text.to_owned(),
            Self::Bullet => text.to_owned(),
            Self::Number(number) => format!("{number}. {text}"),
            Self::Written(label) => format!("{label} {text}"),
        }
    }
}

/// The label of automatic numbers on slides, by the name of their kind, ECMA-376 part 1, 20.1.10.61.
pub(super) fn of_slide(kind: &str, number: u64) -> Label {
    let format = match kind {
        _ if kind.starts_with("alphaLc") => Format::LowerLetter,
        _ if kind.starts_with("alphaUc") => Format::UpperLetter,
        _ if kind.starts_with("romanLc") => Format::LowerRoman,
        _ if kind.starts_with("romanUc") => Format::UpperRoman,
        _ => Format::Decimal,
    };
    let number = format.write(number);
    Label::new(&match kind {
        _ if kind.ends_with("ParenBoth") => format!("({number})"),
        _ if kind.ends_with("ParenR") => format!("{number})"),
        _ if kind.ends_with("Plain") => number,
        _ => format!("{number}."),
    })
}

/// a to z, then aa to zz, as Word counts.
fn letters(number: u64) -> String {
    let (letter, times) = ((number - 1) % 26, (number - 1) / 26 + 1);
    let letter = char::from(b'a' + letter as u8);
    std::iter::repeat_n(letter, times as usize).collect()
}

fn roman(mut number: u64) -> String {
    let mut text = String::new();
    for (value, digits) in ROMAN {
        while number >= value {
            text.push_str(digits);
            number -= value;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_their_format_says() {
        for (format, number, expected) in [
            (Format::Decimal, 12, "12"),
            (Format::DecimalZero, 7, "07"),
            (Format::LowerLetter, 3, "c"),
            (Format::UpperLetter, 28, "BB"),
            (Format::LowerRoman, 1994, "mcmxciv"),
            (Format::UpperRoman, 4, "IV"),
            (Format::UpperRoman, 5000, "5000"),
            (Format::LowerLetter, 0, "0"),
            (Format::None, 3, ""),
        ] {
            assert_eq!(format.write(number), expected);
        }
        assert_eq!(Label::new(" 3. "), Label::Number(3));
        assert_eq!(Label::new("3)"), Label::Written("3)".to_owned()));
        assert_eq!(Label::new(""), Label::Bullet);
        assert_eq!(of_slide("alphaLcParenBoth", 2), Label::Written("(b)".to_owned()));
    }
}
