//! Formulas in one line, as they would be typed: Office's, ECMA-376 part 1, 22.1, and MathML's.

use signalbox_pdf::scripts;

use super::tree::Element;

/// A formula of Office.
pub(super) fn office(element: &Element) -> String {
    let child = |name: &str| element.child(name).map(office).unwrap_or_default();
    let property = |of: &str, name: &str| {
        let found = element.child(of).and_then(|of| of.child(name));
        found.map(|found| found.attribute("val").unwrap_or_default().to_owned())
    };
    match element.name.as_str() {
        "t" => element.text(),
        // How parts look.
        name if name.ends_with("Pr") => String::new(),
        "f" => fraction(&child("num"), &child("den")),
        "sSup" | "limUpp" | "sSub" | "limLow" | "sSubSup" => {
            let low = child(if element.name == "limLow" { "lim" } else { "sub" });
            let high = child(if element.name == "limUpp" { "lim" } else { "sup" });
            with_scripts(&child("e"), &low, &high)
        }
        "sPre" => format!("{}{}", with_scripts("", &child("sub"), &child("sup")), child("e")),
        "rad" => root(&child("deg"), &child("e")),
        "d" => {
            let begin = property("dPr", "begChr").unwrap_or_else(|| "(".to_owned());
            let end = property("dPr", "endChr").unwrap_or_else(|| ")".to_owned());
            let between = property("dPr", "sepChr").unwrap_or_else(|| "|".to_owned());
            let parts: Vec<String> = element.children().filter(|part| part.name == "e").map(office).collect();
            format!("{begin}{}{end}", parts.join(&between))
        }
        "nary" => {
            let sign = property("naryPr", "chr").unwrap_or_else(|| "∫".to_owned());
            format!("{} {}", with_scripts(&sign, &child("sub"), &child("sup")), child("e")).trim().to_owned()
        }
        "func" => joined([child("fName"), child("e")].into_iter()),
        "acc" => child("e") + &property("accPr", "chr").unwrap_or_else(|| "\u{302}".to_owned()),
        "m" => table(element, "mr", "e", office),
        "eqArr" => {
            element.children().filter(|part| part.name == "e").map(office).collect::<Vec<_>>().join("; ")
        }
        _ => element.children().map(office).collect(),
    }
}

/// A formula of MathML.
pub(super) fn mathml(element: &Element) -> String {
    let parts: Vec<&Element> = element.children().collect();
    let part = |index: usize| parts.get(index).map(|part| mathml(part)).unwrap_or_default();
    let all = || joined(parts.iter().map(|part| mathml(part)));
    match element.name.as_str() {
        "mi" | "mn" | "mo" | "mtext" | "ms" => {
            // Invisible signs for what stands beside each other.
            let is_shown = |letter: &char| !matches!(letter, '\u{2061}'..='\u{2064}');
            element.text().trim().chars().filter(is_shown).collect()
        }
        // The formula again, for programs.
        "annotation" | "annotation-xml" | "mphantom" | "none" | "mprescripts" => String::new(),
        "mspace" => " ".to_owned(),
        "mfrac" => fraction(&part(0), &part(1)),
        "msup" => with_scripts(&part(0), "", &part(1)),
        "msub" | "munder" => with_scripts(&part(0), &part(1), ""),
        "msubsup" | "munderover" => with_scripts(&part(0), &part(1), &part(2)),
        "mover" => match accent(&part(1)) {
            Some(accent) => part(0) + accent,
            None => with_scripts(&part(0), "", &part(1)),
        },
        "msqrt" => root("", &all()),
        "mroot" => root(&part(1), &part(0)),
        "mfenced" => {
            let sign = |name: &str, usual: &str| element.attribute(name).unwrap_or(usual).to_owned();
            let between = sign("separators", ",").chars().next().map(String::from).unwrap_or_default();
            let inner: Vec<String> = parts.iter().map(|part| mathml(part)).collect();
            format!("{}{}{}", sign("open", "("), inner.join(&between), sign("close", ")"))
        }
        "mtable" => table(element, "mtr", "mtd", |cell| joined(cell.children().map(mathml))),
        "semantics" => part(0),
        // An element without child elements yields its text.
        _ if parts.is_empty() => element.text().trim().to_owned(),
        _ => all(),
    }
}

/// Parts beside each other. A word keeps its distance from letters: "sin x".
fn joined(parts: impl Iterator<Item = String>) -> String {
    let mut all = String::new();
    let mut was_word = false;
    for part in parts.filter(|part| !part.is_empty()) {
        let first = part.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
        let is_word = first.chars().count() > 1;
        let touches = all.ends_with(char::is_alphanumeric) && part.starts_with(char::is_alphanumeric);
        if touches && (was_word || is_word) {
            all.push(' ');
        }
        let last = part.rsplit(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
        was_word = last.chars().count() > 1;
        all.push_str(&part);
    }
    all
}

/// `text` in brackets, unless it is one thing already.
fn grouped(text: &str) -> String {
    let text = text.trim();
    let is_number = text.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ','));
    let is_word = text.chars().all(|letter| letter.is_alphanumeric() && !letter.is_ascii_digit());
    let is_short = text.chars().filter(|letter| letter.is_alphanumeric()).count() <= 1
        && text.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '′' | '∞' | '*' | '°'));
    if is_number || is_word || is_short || is_bracketed(text) { text.to_owned() } else { format!("({text})") }
}

/// Whether the bracket at the beginning ends at the end.
fn is_bracketed(text: &str) -> bool {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return letter == ')' && at + 1 == text.len();
        }
    }
    false
}

fn fraction(above: &str, below: &str) -> String {
    if above.is_empty() && below.is_empty() {
        return String::new();
    }
    format!("{}/{}", grouped(above), grouped(below))
}

fn root(degree: &str, text: &str) -> String {
    let degree = degree.trim();
    let degree = match scripts::raised(degree) {
        Some(raised) => raised,
        None if degree.is_empty() => String::new(),
        None => format!("{degree}-"),
    };
    let grouped =
        if is_bracketed(text.trim()) { text.trim().to_owned() } else { format!("({})", text.trim()) };
    format!("{degree}√{grouped}")
}

/// `base` with its subscript and superscript.
fn with_scripts(base: &str, low: &str, high: &str) -> String {
    let base = base.trim();
    let is_one = base.is_empty() || base.ends_with([')', ']', '}', '|']) || grouped(base) == base;
    // An operator, or a product of which only the last part is meant.
    let is_plain =
        base.chars().all(|letter| letter.is_alphanumeric()) || !base.contains(char::is_alphanumeric);
    let mut text = if is_one || is_plain { base.to_owned() } else { format!("({base})") };
    let (low, high) = (low.trim(), high.trim());
    if !low.is_empty() {
        text.push_str(&scripts::lowered(low).unwrap_or_else(|| format!("_{}", grouped(low))));
    }
    if !high.is_empty() {
        let is_mark = high.chars().all(|letter| matches!(letter, '′' | '″' | '‴' | '\'' | '*' | '°'));
        let raised = if is_mark { Some(high.to_owned()) } else { scripts::raised(high) };
        text.push_str(&raised.unwrap_or_else(|| format!("^{}", grouped(high))));
    }
    text
}

/// The sign over a letter that becomes a part of it.
fn accent(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "^" | "ˆ" | "\u{302}" => "\u{302}",
        "~" | "˜" | "\u{303}" => "\u{303}",
        "¯" | "‾" | "\u{304}" | "_" => "\u{304}",
        "˙" | "\u{307}" => "\u{307}",
        "¨" | "\u{308}" => "\u{308}",
        "→" | "\u{20D7}" => "\u{20D7}",
        _ => return None,
    })
}

fn table(element: &Element, row: &str, cell: &str, write: impl Fn(&Element) -> String) -> String {
    let rows = element.children().filter(|child| child.name == row);
    let cells = |row: &Element| -> String {
        row.children().filter(|child| child.name == cell).map(&write).collect::<Vec<_>>().join(", ")
    };
    format!("[{}]", rows.map(cells).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::{super::tree::parse, *};

    #[test]
    fn office_formulas_become_lines() {
        let run = |text: &str| format!("<m:r><m:rPr><m:sty m:val='p'/></m:rPr><m:t>{text}</m:t></m:r>");
        let e = |text: &str| format!("<m:e>{}</m:e>", run(text));
        for (xml, expected) in [
            (format!("{}<m:sSup>{}<m:sup>{}</m:sup></m:sSup>", run("E=m"), e("c"), run("2")), "E=mc²"),
            (format!("<m:f><m:num>{}</m:num><m:den>{}</m:den></m:f>", run("a+b"), run("2")), "(a+b)/2"),
            (format!("<m:rad><m:deg>{}</m:deg>{}</m:rad>", run("3"), e("x")), "³√(x)"),
            (
                format!(
                    "<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{}</m:sub><m:sup>{}</m:sup>{}</m:nary>",
                    run("i=1"),
                    run("n"),
                    e("x")
                ),
                "∑_(i=1)^n x",
            ),
            (format!("<m:d>{}</m:d>", e("x+1")), "(x+1)"),
            (format!("<m:func><m:fName>{}</m:fName>{}</m:func>", run("sin"), e("x")), "sin x"),
            (format!("<m:m><m:mr>{}{}</m:mr><m:mr>{}</m:mr></m:m>", e("a"), e("b"), e("c")), "[a, b; c]"),
        ] {
            assert_eq!(office(&parse(&format!("<m:oMath>{xml}</m:oMath>")).unwrap()), expected);
        }
    }

    #[test]
    fn mathml_becomes_lines() {
        for (xml, expected) in [
            (
                "<mi>x</mi><mo>=</mo><mfrac><mrow><mo>-</mo><mi>b</mi></mrow><mrow><mn>2</mn><mi>a</mi></mrow></mfrac>",
                "x=(-b)/(2a)",
            ),
            ("<msubsup><mi>x</mi><mn>1</mn><mi>n</mi></msubsup>", "x₁^n"),
            ("<msqrt><mi>a</mi><mo>+</mo><mn>1</mn></msqrt>", "√(a+1)"),
            ("<mi>sin</mi><mo>\u{2061}</mo><mi>x</mi>", "sin x"),
            ("<mover><mi>x</mi><mo>¯</mo></mover>", "x\u{304}"),
            ("<semantics><mrow><mi>a</mi></mrow><annotation>a over b</annotation></semantics>", "a"),
            ("<mfenced><mi>a</mi><mi>b</mi></mfenced>", "(a,b)"),
        ] {
            assert_eq!(mathml(&parse(&format!("<math>{xml}</math>")).unwrap()), expected);
        }
    }
}
