//! A walk over the bytes of a GOAL text.

/// A walk through one piece; the piece ends with a newline, and only the newline's own case steps over one.
pub(super) struct Cursor<'b> {
    pub bytes: &'b [u8],
    pub at: usize,
}

impl<'b> Cursor<'b> {
    #[inline]
    pub(super) fn peek(&self) -> u8 {
        self.bytes[self.at]
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r') {
            self.at += 1;
        }
    }

    /// A word of letters, digits and underscores, perhaps empty.
    #[inline]
    pub(super) fn word(&mut self) -> &'b [u8] {
        let start = self.at;
        while WORD[self.peek() as usize] {
            self.at += 1;
        }
        &self.bytes[start..self.at]
    }

    /// Steps over `-1` if it stands here.
    #[inline]
    pub(super) fn wildcard(&mut self) -> bool {
        let found = self.bytes[self.at..].starts_with(b"-1") && !WORD[self.bytes[self.at + 2] as usize];
        if found {
            self.at += 2;
        }
        found
    }

    /// The token at the cursor as a message shows it.
    pub(super) fn found(&self, last_piece: bool) -> String {
        let rest = &self.bytes[self.at..];
        match rest[0] {
            b'\n' | b'\r' if last_piece && rest.iter().all(u8::is_ascii_whitespace) => {
                "the end of the file".to_owned()
            }
            b'\n' | b'\r' => "the end of the line".to_owned(),
            _ => {
                let length = rest.iter().position(|&byte| !(WORD[byte as usize] || byte == b'-'));
                let length = length.unwrap_or(rest.len()).clamp(1, 40);
                format!("`{}`", rest[..length].escape_ascii())
            }
        }
    }
}

/// Letters, digits and the underscore.
pub(super) const WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    table
};
