package transcript

import (
	"path/filepath"
	"strings"
)

const aiderStart = "# aider chat started at "

// readAider reads a repository's chat history, in which one session follows
// the other: what is told is told of the last one. A title whose session began
// before the window is not known.
func readAider(info *Info, w window, path string) {
	info.Cwd = filepath.Dir(path)
	started, fenced := w.whole, false
	for raw := range w.tailLines() {
		line := strings.TrimSpace(string(raw))
		said, isPrompt := strings.CutPrefix(line, "#### ")
		did, isOutput := strings.CutPrefix(line, "> ")
		switch {
		case strings.HasPrefix(line, aiderStart):
			started, fenced = true, false
			info.Title, info.Activity = "", ""
		case isPrompt:
			fenced = false
			// Commands to the program are not what the session is about.
			command := strings.HasPrefix(said, "/") || strings.HasPrefix(said, "!")
			if started && info.Title == "" && !command {
				info.Title = said
			}
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, line == "":
		case isOutput:
			if aiderDid(did) {
				info.Activity = did
			}
		case !strings.HasPrefix(line, ">"):
			info.Activity = line
		}
	}
}

// aiderDid tells the program's reports of what it did from its other output.
func aiderDid(output string) bool {
	for _, p := range []string{"Applied edit to ", "Commit ", "Running ", "Committing "} {
		if strings.HasPrefix(output, p) {
			return true
		}
	}
	return false
}
