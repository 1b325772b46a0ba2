package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/serverlab"
	"github.com/grange-project/grange/internal/deathsig"
)

// rules are those that sites have.
const rules = "packaging/prometheus/grange.rules.yml"

// patience bounds how long an alarm may take to come or go: an hour of the rules is a minute here.
const patience = 3 * time.Minute

// still is for how long nothing else may come.
const still = 3 * time.Second

// prometheus is Debian's, which scrapes a site each second.
type prometheus struct {
	url string
	cmd *exec.Cmd
}

const config = `
global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - {job_name: grange-agents, static_configs: [{targets: ['%s']}]}
  - {job_name: grange-servers, static_configs: [{targets: ['%s']}]}
`

func startPrometheus(ctx context.Context, dir string, s *site) (*prometheus, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(faster(string(text))), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), fmt.Appendf(nil, config, s.atHost, s.atServer),
		0o644); err != nil {
		return nil, err
	}
	at, err := serverlab.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &prometheus{url: "http://" + at}
	p.cmd = exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at, "--log.level=warn")
	p.cmd.Stdout, p.cmd.Stderr = os.Stderr, os.Stderr
	if err := deathsig.Start(p.cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	if err := serverlab.Await(ctx, serverlab.StartTime, func() error {
		_, err := get(ctx, p.url+"/-/ready")
		return err
	}); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *prometheus) close() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// durations are those of rules: how long, over how long, and how long ago.
var durations = regexp.MustCompile(`(for: |\[|offset )(\d+)([mhd])`)

// faster is rules in which a minute is a second.
func faster(text string) string {
	return durations.ReplaceAllStringFunc(text, func(found string) string {
		m := durations.FindStringSubmatch(found)
		n, _ := strconv.Atoi(m[2]) // of digits
		return m[1] + strconv.Itoa(n*map[string]int{"m": 1, "h": 60, "d": 24 * 60}[m[3]]) + "s"
	})
}

// firing are the alarms that fire now, each once.
func (p *prometheus) firing(ctx context.Context) ([]string, error) {
	text, err := get(ctx, p.url+"/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels struct{ Alertname string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, err
	}
	names := []string{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels.Alertname)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// await waits until these alarms fire and no others, and goes on to for a while. Another one fails at once.
func (p *prometheus) await(ctx context.Context, what string, wanted ...string) error {
	slices.Sort(wanted)
	deadline, since := time.Now().Add(patience), time.Time{}
	for {
		got, err := p.firing(ctx)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return slices.Contains(wanted, name) })
		switch {
		case len(wanted) > 0 && len(others) > 0:
			return fmt.Errorf("other alarms came: %s", strings.Join(others, ", "))
		case !slices.Equal(got, wanted):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > still:
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not come in %v: firing is %s", what, patience,
				cmp.Or(strings.Join(got, ", "), "nothing"))
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// get is the body of an answer.
func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, text)
	}
	return string(text), err
}
