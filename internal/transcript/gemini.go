package transcript

import (
	"strings"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// readGemini reads chat JSON lines: a header, then messages one by one or in
// batches, and patches of the header.
func readGemini(info *Info, w window) {
	first := ""
	for line := range w.forward(false) {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if info.ID == "" {
			geminiHeader(info, r)
		}
		for _, m := range geminiMessages(r) {
			if first == "" {
				first = geminiPrompt(m)
			}
		}
		if first != "" && info.ID != "" {
			break
		}
	}
	for line := range w.backward() {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if info.Title == "" {
			info.Title = geminiSummary(r)
		}
		ms := geminiMessages(r)
		for i := len(ms) - 1; i >= 0 && info.Activity == ""; i-- {
			info.Activity = geminiActivity(ms[i])
		}
		if info.Title != "" && info.Activity != "" {
			break
		}
	}
	if info.Title == "" {
		info.Title = first
	}
}

func geminiHeader(info *Info, r loose.Object) {
	info.ID, info.CwdHash = r.String("sessionId"), r.String("projectHash")
	info.Began = recordTime(r.String("startTime"))
	switch r.String("kind") {
	case "main":
		info.Subagent = No
	case "subagent":
		info.Subagent = Yes
	}
}

func geminiSummary(r loose.Object) string {
	return strings.TrimSpace(firstNonEmpty(r.Object("$set").String("summary"), r.String("summary")))
}

// geminiMessages are the messages that a record holds.
func geminiMessages(r loose.Object) []loose.Object {
	list := r.List("messages")
	if list == nil {
		list = r.Object("$set").List("messages")
	}
	if list == nil {
		return []loose.Object{r}
	}
	ms := make([]loose.Object, len(list))
	for i, v := range list {
		ms[i], _ = loose.Parse(v)
	}
	return ms
}

func geminiPrompt(m loose.Object) string {
	if m.String("type") != "user" {
		return ""
	}
	return prompt(blocks(m.Value("content")))
}

func geminiActivity(m loose.Object) string {
	if m.String("type") != "gemini" {
		return ""
	}
	bs := blocks(m.Value("content"))
	for _, v := range m.List("toolCalls") {
		call, _ := loose.Parse(v)
		bs = append(bs, toolUse(call, "name", "args"))
	}
	return activity(bs)
}

// readGeminiObject reads the older form, one object for the whole session.
func readGeminiObject(info *Info, w window) {
	o, _ := loose.Parse(w.head)
	geminiHeader(info, o)
	info.Title = geminiSummary(o)
	for _, v := range o.List("messages") {
		if info.Title != "" {
			break
		}
		m, _ := loose.Parse(v)
		info.Title = geminiPrompt(m)
	}
	info.Activity = lastOf(w, o.List("messages"), geminiActivity)
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
