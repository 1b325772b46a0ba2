// Command api starts a server with a small farm of simulated hosts, and has schemathesis ask it whatever its
// description allows, and what it does not: no answer may be a server error, or another one than is described. Its last
// line is JSON.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/serverlab"
	"github.com/grange-project/grange/internal/deathsig"
)

// packages are what is asked with, and all that it needs, pinned by hash: schemathesis and openapi-spec-validator. To
// change them: uv pip compile --generate-hashes --python-version 3.11 --no-header --no-annotate.
//
//go:embed requirements.txt
var packages []byte

// configuration keeps watches, which do not end, out of what is asked; internal/apiserver tests them.
const configuration = `
[[operations]]
include-name = "GET /v1/vms"
parameters = { "query.watch" = false }
`

const farmFile = `
[cells.general]
broker = "grange"
default = true

[projects.atlas]
quota = { vms = 50 }

[shapes.small]
cpus = 1
memory = "512M"

[networks.lan]
bridge = "br0"
addresses = ["10.77.1.1-10.77.1.250/16"]
`

// excluded are checks that say nothing here: what is null is taken as missing, on purpose; a method of another route is
// an ID of this one; a description cannot say which names there are. Wrong tokens are tried by internal/apiserver: here
// they would close the door to all that follows.
var excluded = []string{"negative_data_rejection", "unsupported_method", "positive_data_acceptance", "ignored_auth"}

type options struct {
	grange   string
	venv     string
	examples int
	phases   string
	seed     int
	keep     bool
}

func main() {
	var o options
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	flag.StringVar(&o.grange, "grange", "bin/grange", "the program")
	flag.StringVar(&o.venv, "venv", filepath.Join(cache, "grange", "schemathesis"),
		"Python environment with schemathesis; made when it is not there")
	flag.IntVar(&o.examples, "examples", 20, "the most requests of a route in a phase")
	flag.StringVar(&o.phases, "phases", "examples,coverage,fuzzing", "phases of schemathesis")
	flag.IntVar(&o.seed, "seed", 1, "of what is asked")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory of the run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if err := lab.Venv(ctx, o.venv, packages); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "grange-api-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Println("everything of this run is in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	f, err := start(ctx, o.grange, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	secret, err := f.fill(ctx)
	if err != nil {
		return err
	}
	if err := f.describe(ctx, o.venv); err != nil {
		return err
	}
	return f.ask(ctx, o, secret)
}

// farm is a server and its simulated hosts.
type farm struct {
	grange, dir string
	url         string
	client      *fleet.Client
	started     []*exec.Cmd
}

func start(ctx context.Context, grange, dir string) (*farm, error) {
	address, err := serverlab.FreeAddress()
	if err != nil {
		return nil, err
	}
	f := &farm{grange: grange, dir: dir, url: "https://" + address}
	socket := filepath.Join(dir, "server.sock")
	text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n", filepath.Join(dir, "farm.db"), socket,
		address, f.url)
	if err := os.WriteFile(filepath.Join(dir, "server.toml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	if f.client, err = fleet.NewClient(fleet.Config{Server: "unix://" + socket}); err != nil {
		return nil, err
	}
	if err := f.begin("server", "server", "--config", filepath.Join(dir, "server.toml")); err != nil {
		return nil, err
	}
	return f, f.await(ctx, "the server answers", func() error { _, err := f.client.Version(ctx); return err })
}

// begin starts a program of the farm, with its log beside it.
func (f *farm) begin(name string, args ...string) error {
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(f.grange, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	f.started = append(f.started, cmd)
	return nil
}

func (f *farm) stop() error {
	var errs []error
	for i := len(f.started) - 1; i >= 0; i-- {
		f.started[i].Process.Signal(syscall.SIGTERM)
		if err := f.started[i].Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(f.started[i].Args, " "), err))
		}
	}
	return errors.Join(errs...)
}

func (f *farm) await(ctx context.Context, what string, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(f.dir, "server.log"))
			return fmt.Errorf("waited for: %s: %w\n%s", what, err, log)
		}
	}
}

// fill makes cells, hosts, some VMs, and a token of an administrator.
func (f *farm) fill(ctx context.Context) (secret string, err error) {
	file, socket := filepath.Join(f.dir, "farm.toml"), filepath.Join(f.dir, "server.sock")
	if err := os.WriteFile(file, []byte(farmFile), 0o600); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, f.grange, "--server", socket, "apply", "-f",
		file).CombinedOutput(); err != nil {
		return "", fmt.Errorf("apply: %w\n%s", err, out)
	}
	join, err := f.client.JoinTokens.Create(ctx, fleet.JoinTokenRequest{Cell: "general", Count: 3})
	if err != nil {
		return "", err
	}
	token := filepath.Join(f.dir, "join")
	if err := os.WriteFile(token, []byte(join.Secret), 0o600); err != nil {
		return "", err
	}
	if err := f.begin("sim", "sim", "--server", f.url, "--token-file", token, "--hosts", "3", "--delay",
		"100ms"); err != nil {
		return "", err
	}
	if _, err := f.client.VMs.Create(ctx, "", fleet.VMRequest{Project: "atlas", Name: "web", Count: 3, Image: "micro",
		Shape: "small"}); err != nil {
		return "", err
	}
	for _, name := range []string{"tester", "ann"} {
		if _, err := f.client.Users.Put(ctx, fleet.User{Name: name}); err != nil {
			return "", err
		}
	}
	if err := f.client.Grants.Put(ctx, fleet.Grant{User: "tester", Role: "admin"}); err != nil {
		return "", err
	}
	t, err := f.client.Tokens.Create(ctx, fleet.TokenRequest{User: "tester", Note: "schemathesis"})
	if err != nil {
		return "", err
	}
	return t.Secret, f.await(ctx, "the VMs run", func() error {
		vms, _, err := f.client.VMs.List(ctx, fleet.VMFilter{State: "running"})
		if err == nil && len(vms) != 3 {
			err = fmt.Errorf("%d of 3 run", len(vms))
		}
		return err
	})
}

// describe fetches the description, and has it judged.
func (f *farm) describe(ctx context.Context, venv string) error {
	text, err := f.client.OpenAPI(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(f.dir, "openapi.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(venv, "bin", "python"), "-m", "openapi_spec_validator",
		"--schema", "3.1", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("the description is not OpenAPI 3.1: %w\n%s", err, out)
	}
	fmt.Print("openapi-spec-validator: ", strings.TrimPrefix(string(out), file+": "))
	return nil
}

// result is the last line.
type result struct {
	Routes   int     `json:"routes"`
	Requests int     `json:"requests"`
	Done     int     `json:"done"`          // answers below 300: what was asked was done
	Errors   int     `json:"server_errors"` // answers of 500 or above, but for 503
	Failed   bool    `json:"failed"`        // a check of schemathesis did not hold
	Seconds  float64 `json:"seconds"`
}

// ask asks all that people may, and then what hosts may: a wrong join token counts against our address, and would close
// the door to the rest.
func (f *farm) ask(ctx context.Context, o options, secret string) error {
	if err := os.WriteFile(filepath.Join(f.dir, "schemathesis.toml"), []byte(configuration), 0o600); err != nil {
		return err
	}
	var r result
	begun := time.Now()
	err := errors.Join(
		f.askSome(ctx, o, secret, &r, "--exclude-path-regex", "^/v1/host/", "--exclude-operation-id", "watch-changes"),
		f.askSome(ctx, o, secret, &r, "--include-path-regex", "^/v1/host/"),
		r.countRoutes(filepath.Join(f.dir, "openapi.json")))
	r.Seconds = time.Since(begun).Seconds()
	line, _ := json.Marshal(r)
	fmt.Println(string(line))
	if r.Errors > 0 {
		log, _ := os.ReadFile(filepath.Join(f.dir, "server.log"))
		err = errors.Join(err, fmt.Errorf("%d server errors\n%s", r.Errors, log))
	}
	return err
}

func (f *farm) askSome(ctx context.Context, o options, secret string, r *result, chosen ...string) error {
	report := filepath.Join(f.dir, "report.har")
	args := append([]string{"--config-file", filepath.Join(f.dir, "schemathesis.toml"), "run",
		filepath.Join(f.dir, "openapi.json"), "--url", f.url, "--tls-verify", "false", "-H",
		"Authorization: Bearer " + secret, "--phases", o.phases, "--exclude-checks", strings.Join(excluded, ","),
		"--max-examples", fmt.Sprint(o.examples), "--seed", fmt.Sprint(o.seed), "--request-timeout", "20",
		"--continue-on-failure", "--warnings", "off", "--no-color", "--report", "har", "--report-har-path", report},
		chosen...)
	cmd := exec.CommandContext(ctx, filepath.Join(o.venv, "bin", "st"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "PYTHONWARNINGS=ignore")
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("schemathesis: %w", err)
		r.Failed = true
	}
	return errors.Join(err, r.countAnswers(report))
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// countAnswers adds what was asked and answered.
func (r *result) countAnswers(report string) error {
	var har struct {
		Log struct {
			Entries []struct {
				Response struct{ Status int }
			}
		}
	}
	if err := readJSON(report, &har); err != nil {
		return err
	}
	for _, e := range har.Log.Entries {
		r.Requests++
		switch {
		case e.Response.Status < 300:
			r.Done++
		case e.Response.Status >= 500 && e.Response.Status != 503:
			r.Errors++
		}
	}
	return nil
}

func (r *result) countRoutes(description string) error {
	var d struct {
		Paths map[string]map[string]json.RawMessage
	}
	err := readJSON(description, &d)
	for _, methods := range d.Paths {
		r.Routes += len(methods)
	}
	return err
}
