// The seeds of a target, out of its file in `corpus`: an input per line, in hexadecimal.

/// The inputs that `text` lists.
fn seeds(text: &str) -> impl Iterator<Item = Vec<u8>> + '_ {
    let byte = |line: &str, at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("two hexadecimal digits");
    text.lines().map(move |line| (0..line.len()).step_by(2).map(|at| byte(line, at)).collect())
}
