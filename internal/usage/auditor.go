package usage

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
)

// Auditor writes records as AUDITOR takes them, one a line: the body of a POST to /record.
type Auditor struct {
	lines *json.Encoder
	site  string
}

// NewAuditor writes records of a site; "": they name none.
func NewAuditor(to io.Writer, site string) Auditor {
	lines := json.NewEncoder(to)
	lines.SetEscapeHTML(false)
	return Auditor{lines, site}
}

// auditorRecord is what AUDITOR calls RecordAdd.
type auditorRecord struct {
	ID         string              `json:"record_id"`
	Meta       map[string][]string `json:"meta"`
	Components []auditorComponent  `json:"components"`
	Start      time.Time           `json:"start_time"`
	Stop       time.Time           `json:"stop_time"`
}

type auditorComponent struct {
	Name   string         `json:"name"`
	Amount int64          `json:"amount"`
	Scores []auditorScore `json:"scores"`
}

type auditorScore struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Write writes one record. Its ID keeps AUDITOR from taking it twice.
func (a Auditor) Write(u api.Usage) error {
	meta := map[string][]string{}
	for name, value := range map[string]string{"site_id": a.site, "user_id": u.User, "group_id": u.Account,
		"project": u.Project, "vo": u.VO, "fqan": u.FQAN, "kind": u.Kind, "batch": u.Batch, "queue": u.Queue, "cell": u.Cell,
		"host": u.Host, "hardware": u.Hardware, "tuning": u.Tuning, "image": u.Digest, "ended": u.Ended} {
		if value = auditorName(value); value != "" {
			meta[name] = []string{value}
		}
	}
	cores := auditorComponent{Name: "Cores", Amount: int64(u.Cores), Scores: []auditorScore{}}
	if u.Score > 0 && u.ScoreUnit != "" {
		cores.Scores = []auditorScore{{auditorName(u.ScoreUnit), u.Score}}
	}
	components := []auditorComponent{cores}
	if u.CPU != nil {
		components = append(components, auditorComponent{"CPUSeconds", int64(*u.CPU + 0.5), []auditorScore{}})
	}
	for _, c := range []struct {
		name   string
		amount float64
		known  bool
	}{{"WallSeconds", u.Wall, true}, {"MemoryMiB", float64(u.Memory >> 20), u.Memory > 0},
		{"MemoryPeakMiB", float64(u.MemoryPeak >> 20), u.MemoryPeak > 0},
		{"ScratchMiB", float64(u.Scratch >> 20), u.Kind != api.UsageMetal}} {
		if c.known {
			components = append(components, auditorComponent{c.name, int64(c.amount + 0.5), []auditorScore{}})
		}
	}
	end := u.End
	if end.Before(u.Start) { // the clock was set back
		end = u.Start
	}
	return a.lines.Encode(auditorRecord{u.ID, meta, components, u.Start.UTC(), end.UTC()})
}

// auditorName is a text as AUDITOR takes names: of at most 256 characters, and without nine of them, which are escaped
// as in a URL.
func auditorName(text string) string {
	const most = 256
	var b strings.Builder
	for _, r := range strings.TrimSpace(text) {
		one := string(r)
		if strings.ContainsRune(`/()"<>\{}%`, r) {
			one = fmt.Sprintf("%%%02X", r)
		}
		if b.Len()+len(one) > most {
			break
		}
		b.WriteString(one)
	}
	return b.String()
}
