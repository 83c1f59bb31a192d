//! Safe display of text: no name may control a terminal.

use std::fmt::Write;

/// Prints one line on stderr; recorder and replayer print there only by this function.
pub fn complain(line: &str) {
    eprintln!("{}", shown(line));
}

/// Returns a text on one line with visible characters only.
///
/// Control and format characters, line ends and spaces but the usual one become \x1b or \u202e, as
/// in `spoolscope.traces.text`. Rust also writes marks that combine with the letter before.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let code = u32::from(character);
        let result = match code {
            _ if is_seen(character) => {
                out.push(character);
                Ok(())
            }
            0..0x100 => write!(out, "\\x{code:02x}"),
            0x100..0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
        result.expect("writing to a string never fails");
    }
    out
}

/// Returns JSON as ASCII without DEL: characters in strings that control a terminal are escaped.
pub fn shown_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").expect("writing to a string never fails");
        }
    }
    out
}

/// Returns whether a character is printable and visible.
fn is_seen(character: char) -> bool {
    let ignorable = matches!(
        character,
        '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
    );
    let quoted = matches!(character, '\'' | '"' | '\\');
    quoted || (!ignorable && character.escape_debug().len() == 1)
}

#[cfg(test)]
mod tests {
    use super::{shown, shown_json};

    #[test]
    fn json_is_ascii_and_says_the_same() {
        let json = "{\"\u{7f}\u{202e}é\": \"😀\"}";
        assert_eq!(
            shown_json(json),
            r#"{"\u007f\u202e\u00e9": "\ud83d\ude00"}"#
        );
    }

    #[test]
    fn what_drives_a_terminal_is_written_out() {
        let name = "a\x1b]0;x\x07b\r\n\t\x7f\u{9b}\u{202e}\u{200b}\u{feff}\u{e0041}é";
        let seen = r"a\x1b]0;x\x07b\x0d\x0a\x09\x7f\x9b\u202e\u200b\ufeff\U000e0041é";
        assert_eq!(shown(name), seen);
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["", "don't \"quote\" C:\\x", "Bücher/日本語/почта", "😀 …"] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn nothing_hidden_is_left_of_any_character() {
        for character in char::MIN..=char::MAX {
            let seen = shown(&character.to_string());
            assert!(!seen.chars().any(char::is_control), "{character:?}");
            assert!(!seen.is_empty());
        }
    }
}
