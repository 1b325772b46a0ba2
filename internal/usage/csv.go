package usage

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/grange-project/grange/api"
)

// columns of the CSV, in order.
var columns = []struct {
	name string
	text func(api.Usage) string
}{
	{"id", func(u api.Usage) string { return u.ID }},
	{"month", func(u api.Usage) string { return u.Month }},
	{"late", func(u api.Usage) string { return strconv.FormatBool(u.Late) }},
	{"kind", func(u api.Usage) string { return u.Kind }},
	{"part", func(u api.Usage) string { return strconv.Itoa(u.Part) }},
	{"vm", func(u api.Usage) string { return u.VM }},
	{"name", func(u api.Usage) string { return u.Name }},
	{"job", func(u api.Usage) string { return u.Job }},
	{"batch", func(u api.Usage) string { return u.Batch }},
	{"queue", func(u api.Usage) string { return u.Queue }},
	{"user", func(u api.Usage) string { return u.User }},
	{"account", func(u api.Usage) string { return u.Account }},
	{"project", func(u api.Usage) string { return u.Project }},
	{"fqan", func(u api.Usage) string { return u.FQAN }},
	{"vo", func(u api.Usage) string { return u.VO }},
	{"cell", func(u api.Usage) string { return u.Cell }},
	{"host", func(u api.Usage) string { return u.Host }},
	{"hardware", func(u api.Usage) string { return u.Hardware }},
	{"tuning", func(u api.Usage) string { return u.Tuning }},
	{"findings", func(u api.Usage) string { return strconv.Itoa(u.Findings) }},
	{"image", func(u api.Usage) string { return u.Image }},
	{"digest", func(u api.Usage) string { return u.Digest }},
	{"shape", func(u api.Usage) string { return u.Shape }},
	{"start", func(u api.Usage) string { return u.Start.UTC().Format(time.RFC3339Nano) }},
	{"end", func(u api.Usage) string { return u.End.UTC().Format(time.RFC3339Nano) }},
	{"wall_seconds", func(u api.Usage) string { return number(u.Wall) }},
	{"cores", func(u api.Usage) string { return strconv.Itoa(u.Cores) }},
	{"memory", func(u api.Usage) string { return strconv.FormatUint(u.Memory, 10) }},
	{"memory_peak", func(u api.Usage) string { return strconv.FormatUint(u.MemoryPeak, 10) }},
	{"job_memory_peak", func(u api.Usage) string { return strconv.FormatUint(u.JobMemory, 10) }},
	{"scratch", func(u api.Usage) string { return strconv.FormatUint(u.Scratch, 10) }},
	{"cpu_seconds", func(u api.Usage) string { return numberOrNone(u.CPU) }},
	{"job_cpu_seconds", func(u api.Usage) string { return numberOrNone(u.JobCPU) }},
	{"network_in", func(u api.Usage) string { return count(u.NetworkIn) }},
	{"network_out", func(u api.Usage) string { return count(u.NetworkOut) }},
	{"score", func(u api.Usage) string {
		if u.Score == 0 {
			return ""
		}
		return strconv.FormatFloat(u.Score, 'f', -1, 64)
	}},
	{"score_unit", func(u api.Usage) string { return u.ScoreUnit }},
	{"ended", func(u api.Usage) string { return u.Ended }},
}

func number(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 6, 64) }

func numberOrNone(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return number(*seconds)
}

func count(n *uint64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatUint(*n, 10)
}

// CSV writes records with a head.
type CSV struct{ w *csv.Writer }

// NewCSV writes the head.
func NewCSV(to io.Writer) (CSV, error) {
	c := CSV{csv.NewWriter(to)}
	var head []string
	for _, column := range columns {
		head = append(head, column.name)
	}
	return c, c.w.Write(head)
}

// Write writes one record. A spreadsheet takes none of its words for a formula.
func (c CSV) Write(u api.Usage) error {
	var line []string
	for _, column := range columns {
		text := column.text(u)
		if len(text) > 0 && (text[0] == '=' || text[0] == '+' || text[0] == '@' || text[0] == '-') {
			text = "'" + text
		}
		line = append(line, text)
	}
	return c.w.Write(line)
}

// Flush returns the first error of all writes.
func (c CSV) Flush() error {
	c.w.Flush()
	return c.w.Error()
}
