package archtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/agent/meter"
	"github.com/grange-project/grange/internal/metrics"
	servermeter "github.com/grange-project/grange/internal/server/meter"
	"github.com/grange-project/grange/internal/tuning/report"
)

// exported are all metrics by name: of agents, of servers, and of audits.
func exported(t *testing.T) map[string]metrics.Metric {
	t.Helper()
	all := map[string]metrics.Metric{}
	server := servermeter.New(servermeter.Sources{})
	server.Polls(nil)
	for _, m := range slices.Concat(meter.New(meter.Host{}).Metrics(), server.Metrics()) {
		all[m.Name] = m
	}
	for _, s := range report.Samples() {
		all[s.Name] = metrics.Metric{Name: s.Name, Type: metrics.Gauge, Labels: s.Labels, Help: s.Help}
	}
	return all
}

// row is the line of a metric in the document.
func row(m metrics.Metric) string {
	labels := "–"
	if len(m.Labels) > 0 {
		labels = "`" + strings.Join(m.Labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, m.Type, labels, strings.ReplaceAll(m.Help, "|", "\\|"))
}

var metricRow = regexp.MustCompile("(?m)^\\| `(grange_[a-z0-9_]+)` \\|.*$")

// TestMetricsAreExplained compares what is exported with its document, both ways.
func TestMetricsAreExplained(t *testing.T) {
	all, seen := exported(t), map[string]bool{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "docs/reference/metrics.md"), -1) {
		seen[m[1]] = true
		if is, ok := all[m[1]]; !ok {
			t.Errorf("docs/reference/metrics.md explains %s, which nothing exports", m[1])
		} else if want := row(is); want != m[0] {
			t.Errorf("docs/reference/metrics.md has\n%s\nbut should have\n%s", m[0], want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !seen[name] {
			t.Errorf("docs/reference/metrics.md lacks the row\n%s", row(all[name]))
		}
	}
}

// TestMetricNames: base units, and the endings that Prometheus' own checker wants.
func TestMetricNames(t *testing.T) {
	for name, m := range exported(t) {
		if total := strings.HasSuffix(name, "_total"); total != (m.Type == metrics.Counter) {
			t.Errorf("%s is a %s", name, m.Type)
		}
		for _, unit := range []string{"milliseconds", "kib", "kilobytes", "percent"} {
			if strings.Contains(name, unit) {
				t.Errorf("%s has %s, which is no base unit", name, unit)
			}
		}
		if !strings.HasSuffix(m.Help, ".") {
			t.Errorf("the help of %s is not a sentence", name)
		}
	}
}

// boundless are what no label may be: there is no end to them.
var boundless = []string{"user", "job_id", "host", "project", "name", "id", "image", "address"}

// TestLabelsAreBounded: a label has few values, but for the name of a VM, in series that a site has to switch on.
func TestLabelsAreBounded(t *testing.T) {
	for name, m := range exported(t) {
		for _, l := range m.Labels {
			if slices.Contains(boundless, l) || l == "vm" && !strings.HasPrefix(name, meter.OfVMs) {
				t.Errorf("%s has the label %s, which has no bound", name, l)
			}
		}
	}
}

// TestQueries: rules and dashboards name only what is exported.
func TestQueries(t *testing.T) {
	all, asked := exported(t), map[string]bool{}
	check := func(where, query string) {
		names, problems := namesIn(query, all)
		for _, p := range problems {
			t.Errorf("%s: %s: %s", where, p, query)
		}
		for _, n := range names {
			asked[n] = true
		}
	}
	rules, _ := filepath.Glob(filepath.Join(top, "packaging/prometheus/*.rules.yml"))
	boards, _ := filepath.Glob(filepath.Join(top, "packaging/grafana/*.json"))
	if len(rules) == 0 || len(boards) != 3 {
		t.Fatalf("%d files of rules, %d dashboards", len(rules), len(boards))
	}
	for _, file := range rules {
		for _, q := range regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(readFile(t, file), -1) {
			if strings.ContainsAny(q[1][:1], "|>'\"") {
				t.Errorf("%s: write each expr on one line, unquoted, so that this test can read it", file)
			}
			check(filepath.Base(file), q[1])
		}
	}
	for _, file := range boards {
		var board any
		if err := json.Unmarshal([]byte(readFile(t, file)), &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		n := 0
		eachQuery(board, func(q string) { n++; check(filepath.Base(file), q) })
		if n < 5 {
			t.Errorf("%s has %d queries", file, n)
		}
	}
	if len(asked) < len(all)/2 {
		t.Errorf("rules and dashboards look at %d of %d metrics", len(asked), len(all))
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	name, err := filepath.Rel(top, path)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, name)
}

// TestAlarmsHaveRunbooks: each alarm has a heading in the guide, and the errors that rules look for are errors.
func TestAlarmsHaveRunbooks(t *testing.T) {
	guide, known, alarms := read(t, "docs/guide/monitoring.md"), codes(t), map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(top, "packaging/prometheus/*.rules.yml"))
	for _, file := range files {
		text := readFile(t, file)
		for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(text, -1) {
			alarms[m[1]] = true
			if !strings.Contains(guide, "\n### "+m[1]+"\n") {
				t.Errorf("docs/guide/monitoring.md does not say what to do about %s", m[1])
			}
			if !strings.Contains(text, "runbook: docs/guide/monitoring.md#"+strings.ToLower(m[1])+"\n") {
				t.Errorf("%s does not say where its runbook is", m[1])
			}
		}
		for _, m := range regexp.MustCompile(`code=~?"([^"]*)"`).FindAllStringSubmatch(text, -1) {
			for code := range strings.SplitSeq(m[1], "|") {
				if known[code] == "" {
					t.Errorf("%s looks for errors %q, which nothing raises", file, code)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Grange\w+)$`).FindAllStringSubmatch(guide, -1) {
		if !alarms[m[1]] {
			t.Errorf("docs/guide/monitoring.md explains %s, which no rule raises", m[1])
		}
	}
}

// eachQuery finds the queries of a dashboard: fields expr of panels, and the arguments of label_values of variables.
func eachQuery(v any, do func(string)) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			eachQuery(x, do)
		}
	case map[string]any:
		for key, x := range v {
			text, is := x.(string)
			switch values := regexp.MustCompile(`^label_values\((.*), *([a-z_]+)\)$`).FindStringSubmatch(text); {
			case key == "expr" && is:
				do(text)
			case values != nil:
				do("sum by (" + values[2] + ") (" + values[1] + ")")
			default:
				eachQuery(x, do)
			}
		}
	}
}

// words of PromQL that are no metrics, and labels that Prometheus adds.
var (
	promWords   = strings.Fields("and or unless by without on ignoring group_left group_right offset bool inf nan")
	addedLabels = []string{"instance", "job", "le"}
	quoted      = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	selector    = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}`)
	grouping    = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	ranges      = regexp.MustCompile(`\[[^\]]*\]`)
	identifier  = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	duration    = regexp.MustCompile(`\b[0-9][0-9a-z.]*\b`)
)

// namesIn returns the metrics of a query, and what of it is not exported.
func namesIn(query string, all map[string]metrics.Metric) (names, problems []string) {
	labels := slices.Clone(addedLabels)
	use := func(name string) []string {
		base := name
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, end); ok && all[cut].Type == metrics.Histogram {
				base = cut
			}
		}
		m, ok := all[base]
		switch {
		case name == "up":
		case !ok:
			problems = append(problems, name+" is not exported")
		case m.Type == metrics.Histogram && base == name:
			problems = append(problems, name+" is a histogram: its series end in _bucket, _sum and _count")
		default:
			names = append(names, base)
			labels = append(labels, m.Labels...)
		}
		return append(slices.Clone(addedLabels), m.Labels...)
	}
	query = quoted.ReplaceAllString(query, `""`)
	for _, s := range selector.FindAllStringSubmatch(query, -1) {
		known := use(s[1])
		for _, l := range identifier.FindAllString(s[2], -1) {
			if !slices.Contains(known, l) {
				problems = append(problems, s[1]+" has no label "+l)
			}
		}
	}
	rest := ranges.ReplaceAllString(selector.ReplaceAllString(query, " "), " ")
	groups := grouping.FindAllStringSubmatch(rest, -1)
	rest = duration.ReplaceAllString(grouping.ReplaceAllString(rest, " "), " ")
	for _, at := range identifier.FindAllStringIndex(rest, -1) {
		word := rest[at[0]:at[1]]
		if call := strings.HasPrefix(strings.TrimSpace(rest[at[1]:]), "("); call || slices.Contains(promWords, word) {
			continue
		}
		use(word)
	}
	for _, g := range groups {
		for _, l := range identifier.FindAllString(g[2], -1) {
			if !slices.Contains(labels, l) {
				problems = append(problems, "no metric of it has the label "+l)
			}
		}
	}
	return names, problems
}

// TestNamesInFinds: the test above finds what it is for.
func TestNamesInFinds(t *testing.T) {
	all := map[string]metrics.Metric{"grange_a": {Name: "grange_a", Type: metrics.Gauge, Labels: []string{"state"}},
		"grange_h": {Name: "grange_h", Type: metrics.Histogram, Labels: []string{"phase"}}}
	for query, wrong := range map[string]int{
		`sum by (instance) (grange_a{state="x"}) > 3`:                                      0,
		`histogram_quantile(0.9, sum by (le, phase) (rate(grange_h_bucket[$__interval])))`: 0,
		`grange_b`:               1,
		`grange_a{phase="x"}`:    1,
		`sum by (vm) (grange_a)`: 1,
		`rate(grange_h[5m])`:     1,
		`grange_a offset 1d and on (instance) up == 0`: 0,
		`grange_a_bucket`: 1,
	} {
		if _, problems := namesIn(query, all); len(problems) != wrong {
			t.Errorf("%s: %v", query, problems)
		}
	}
}
