# Turns a command's --help into its man page, so that the two cannot say different things.
# usage: COMMAND --help | awk -v version=0.2.0 -v others="..." -f man_page.awk

# As troff takes it: backslashes, dashes as they are typed, lines that begin like a request.
function plain(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  sub(/^[.']/, "\\\\\\&&", text)
  return text
}

function trimmed(text) {
  sub(/^ +/, "", text)
  sub(/ +$/, "", text)
  return text
}

# The first line: "NAME does something."
NR == 1 {
  name = $1
  what = substr($0, length(name) + 2)
  sub(/\.$/, "", what)
  printf ".TH %s 1 \"\" \"onnx\\-external %s\" \"User Commands\"\n", toupper(name), version
  printf ".SH NAME\n%s \\- %s\n", plain(name), plain(what)
  next
}

# "usage: NAME ...", and lines below it that begin with the name.
/^usage: / || (section == "SYNOPSIS" && /^ +[a-z]+-external /) {
  if (section != "SYNOPSIS") {
    print ".SH SYNOPSIS\n.nf"
  }
  section = "SYNOPSIS"
  sub(/^usage: /, "")
  print plain(trimmed($0))
  next
}

/^$/ {
  if (section == "SYNOPSIS" || section == "EXAMPLES") {
    print ".fi"
  }
  section = ""
  next
}

# "output:", "mapping (docs/mapping.md has the rules):"
/^[a-z][a-z ]*( \(.*\))?:$/ {
  section = toupper(substr($0, 1, match($0, /( \(.*\))?:$/) - 1))
  printf ".SH %s\n", plain(section)
  if (match($0, /\(.*\)/)) {
    printf "%s.\n", plain(substr($0, RSTART + 1, RLENGTH - 2))
  }
  if (section == "EXAMPLES") {
    print ".nf"
  }
  next
}

section == "EXAMPLES" {
  print plain(trimmed($0))
  next
}

# A paragraph of its own.
section == "" {
  section = "DESCRIPTION"
  print ".SH DESCRIPTION"
}
section == "DESCRIPTION" {
  print plain($0)
  next
}

# "  -o, --output OUT_DIR   the folder", "  0  done"; deeper lines go on with the one above.
/^  [^ ]/ {
  entry = trimmed($0)
  end = match(entry, /  +/)
  term = end ? substr(entry, 1, end - 1) : entry
  printf ".TP\n\\fB%s\\fR\n", plain(term)
  if (end) {
    print plain(trimmed(substr(entry, end)))
  }
  next
}
{
  print plain(trimmed($0))
}

END {
  printf ".SH SEE ALSO\n%s\n", plain(others)
}
