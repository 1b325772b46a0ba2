package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/e2e/lab"
)

//go:embed requirements.txt
var hubPackages []byte

//go:embed jupyterhub_config.py
var hubConfig []byte

const (
	// proxyPackage is the proxy that JupyterHub has unless a site chooses another one.
	proxyPackage = "configurable-http-proxy@5.3.0"
	// hubCache is not in anybody's home: servers in VMs have it read-only, as their users.
	hubCache = "/var/cache/grange-test/jupyterhub"
)

// site is what the agent's configuration has for a hub: whom ports are published to, and where VMs reach the hub.
const site = `
[services.jupyterhub]
connect = "127.0.0.1:%[1]d"
port = %[1]d
[publish.hub]
accounts = ["root", "jhproxy"]
[pools.jupyter]
about = "notebooks"
image = "micro"
home = true
max_memory = "1400M"
binds = ["/usr:ro", "%[2]s:ro"]
[default_shape]
memory = "1400M"
[batch]
binds = ["/usr:ro", "%[2]s:ro"]
`

// hub is a JupyterHub that runs as root, with its proxy, an account of its own.
type hub struct {
	Slurm       bool              `json:"slurm"`
	Dir         string            `json:"dir"`
	Venv        string            `json:"venv"`
	Grange      string            `json:"grange"`
	URL         string            `json:"url"`
	Hub         int               `json:"hub"`
	ProxyAPI    int               `json:"proxy_api"`
	Port        int               `json:"port"`
	Password    string            `json:"password"`
	Token       string            `json:"token"`
	Environment map[string]string `json:"environment"`

	programs []*exec.Cmd
	log      *os.File
}

// install has the packages of PyPI and npm, pinned, and ours.
func install(ctx context.Context) error {
	if err := os.MkdirAll(hubCache, 0o755); err != nil {
		return err
	}
	if err := lab.Venv(ctx, hubCache, hubPackages); err != nil {
		return err
	}
	ours, err := os.MkdirTemp("", "grange-jupyterhub") // setuptools writes beside its sources
	if err != nil {
		return err
	}
	defer os.RemoveAll(ours)
	for _, words := range [][]string{
		{"/bin/cp", "-r", filepath.Join(lab.Source(), "packaging", "jupyterhub"), ours},
		{filepath.Join(hubCache, "bin", "pip"), "install", "-q", "--no-deps", "--no-build-isolation",
			"--force-reinstall", filepath.Join(ours, "jupyterhub")},
		{"npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", hubCache,
			proxyPackage},
	} {
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
		}
	}
	return nil
}

// newHub has what the hub is to be; start starts it.
func newHub(slurm bool) (*hub, error) {
	dir, err := os.MkdirTemp("", "grange-hub")
	if err != nil {
		return nil, err
	}
	h := &hub{Slurm: slurm, Dir: dir, Venv: hubCache, Password: api.NewID(), Token: api.NewID()}
	h.Environment = map[string]string{"PATH": hubCache + "/bin:/usr/bin:/bin"}
	var ports [4]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all are chosen
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	h.URL, h.Hub, h.ProxyAPI, h.Port = "http://127.0.0.1:"+strconv.Itoa(ports[0]), ports[1], ports[2], ports[3]
	h.log, err = os.Create(filepath.Join(dir, "hub.log"))
	return h, err
}

func (h *hub) agentConfig() string { return fmt.Sprintf(site, h.Hub, hubCache) }

func (h *hub) start(ctx context.Context) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	settings, config := filepath.Join(h.Dir, "settings.json"), filepath.Join(h.Dir, "jupyterhub_config.py")
	if err := errors.Join(os.WriteFile(settings, text, 0o600), os.WriteFile(config, hubConfig, 0o600)); err != nil {
		return err
	}
	secret := "CONFIGPROXY_AUTH_TOKEN=" + api.NewID()
	front := exec.Command(filepath.Join(hubCache, "node_modules", ".bin", "configurable-http-proxy"),
		"--ip", "127.0.0.1", "--port", h.URL[strings.LastIndex(h.URL, ":")+1:],
		"--api-ip", "127.0.0.1", "--api-port", strconv.Itoa(h.ProxyAPI), "--default-target", fmt.Sprintf("http://127.0.0.1:%d", h.Hub))
	front.Env, front.Dir = append(os.Environ(), secret), "/"
	front.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: proxy, Gid: proxy}}
	own := exec.Command(filepath.Join(hubCache, "bin", "jupyterhub"), "--config", config)
	own.Env, own.Dir = append(os.Environ(), secret, "GRANGE_TEST_HUB="+settings), h.Dir
	for name, value := range h.Environment { // squeue and scancel have the hub's own
		own.Env = append(own.Env, name+"="+value)
	}
	for _, cmd := range []*exec.Cmd{front, own} {
		cmd.Stdout, cmd.Stderr = h.log, h.log
		if err := cmd.Start(); err != nil {
			return err
		}
		h.programs = append(h.programs, cmd)
	}
	return h.until(ctx, "the hub is up", func() error { return h.ask(ctx, "GET", "/hub/api/", nil) })
}

// until waits for something that fails at first.
func (h *hub) until(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not happen that %s: %w", what, err)
		case <-time.After(time.Second):
		}
	}
}

// ask is a request of the hub's API, as the site's administrator.
func (h *hub) ask(ctx context.Context, method, path string, to any) error {
	r, err := http.NewRequestWithContext(ctx, method, h.URL+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "token "+h.Token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 400 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if err == nil && to != nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// ready waits until julia's server is.
func (h *hub) ready(ctx context.Context) error {
	return h.until(ctx, "julia's server is ready", func() error {
		var user struct {
			Servers map[string]struct {
				Ready bool `json:"ready"`
			} `json:"servers"`
		}
		if err := h.ask(ctx, "GET", "/hub/api/users/julia", &user); err != nil {
			return err
		}
		if s, ok := user.Servers[""]; !ok {
			return errors.New("no server")
		} else if !s.Ready {
			return errors.New("its server is not ready")
		}
		return nil
	})
}

// end ends julia's server, by the hub.
func (h *hub) end(ctx context.Context) error {
	return h.ask(ctx, "DELETE", "/hub/api/users/julia/server", nil)
}

func (h *hub) close() {
	for _, cmd := range slices.Backward(h.programs) {
		cmd.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		cmd.Wait()
		ended.Stop()
	}
	h.log.Close()
	os.RemoveAll(h.Dir)
}

// words are the last lines of the hub's log, and of julia's server.
func (h *hub) words() string {
	var all bytes.Buffer
	for _, name := range []string{h.log.Name(), filepath.Join(homeOf("julia"), "server.log")} {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&all, "%s:\n%s\n", name, text[max(0, len(text)-6000):])
	}
	return all.String()
}

// published is where julia's server is on the host, as its VM's wrapper says.
func (h *hub) published() (string, error) {
	for _, name := range []string{h.log.Name(), filepath.Join(homeOf("julia"), "server.log")} {
		text, _ := os.ReadFile(name)
		if _, rest, ok := strings.Cut(string(text), " of the VM is "); ok {
			at, _, _ := strings.Cut(rest, " ")
			return at, nil
		}
	}
	return "", errors.New("nothing says where the server's port is")
}

// notebook is what a user of a hub does: sign in, have a server, run a cell. Then who else reaches the server.
func (h *hub) notebook(ctx context.Context, b *bench, form map[string]string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, h.words())
		}
	}()
	if err := h.start(ctx); err != nil {
		return err
	}
	user, err := h.signIn(ctx, "julia")
	if err != nil {
		return err
	}
	if err := errors.Join(user.spawn(ctx, form), h.ready(ctx)); err != nil {
		return err
	}
	if err := user.runsCell(ctx); err != nil {
		return err
	}
	if err := h.apart(ctx, b); err != nil {
		return err
	}
	return h.end(ctx)
}

// apart: of all accounts, the owner, the hub's and the proxy's get an answer from the server's port.
func (h *hub) apart(ctx context.Context, b *bench) error {
	at, err := h.published()
	if err != nil {
		return err
	}
	for user, want := range map[int]bool{julia: true, proxy: true, 0: true, jack: false, bob: false, 65534: false} {
		got := b.connectAs(ctx, uint32(user), at, "GET / HTTP/1.0\r\n\r\n")
		if strings.HasPrefix(got, "HTTP/1.1 ") != want || got != "" && !want {
			return fmt.Errorf("user %d got %q at %s", user, got, at)
		}
	}
	return nil
}

// hubInPool: by our spawner, on a host without a batch system.
func hubInPool(ctx context.Context, b *bench) error {
	if err := install(ctx); err != nil {
		return err
	}
	h, err := newHub(false)
	if err != nil {
		return err
	}
	defer h.close()
	h.Grange, h.Environment["GRANGE_SOCKET"] = b.host.Binary, b.host.Socket
	if err := b.host.Configure(config + h.agentConfig()); err != nil {
		return err
	}
	b.host.SignalAgent(syscall.SIGHUP)
	b.vms++
	if err := h.notebook(ctx, b, map[string]string{"pool": "jupyter"}); err != nil {
		return err
	}
	return b.noVMs(ctx)
}

// hubInSlurm: by batchspawner, in a job of a Slurm of our own, which has VMs by its plug-in.
func hubInSlurm(ctx context.Context, b *bench) (err error) {
	if err := install(ctx); err != nil {
		return err
	}
	h, err := newHub(true)
	if err != nil {
		return err
	}
	defer h.close()
	image, err := os.MkdirTemp(b.host.Dir, "image")
	if err != nil {
		return err
	}
	if err := b.host.Export(image); err != nil {
		return err
	}
	slurm, err := slurmlab.Start(ctx, slurmlab.Options{Agent: h.agentConfig(), Image: image,
		Programs: filepath.Dir(b.host.Binary)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slurm.Close()) }()
	for _, kv := range slurm.Command(ctx, slurmlab.User, "true").Env {
		if conf, ok := strings.CutPrefix(kv, "SLURM_CONF="); ok {
			h.Environment["SLURM_CONF"] = conf
		}
	}
	b.vms++
	if err := h.notebook(ctx, b, nil); err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(homeOf("julia"), "server.log"))
	if want := fmt.Sprintf("port 9999 of the VM is 127.0.0.1:%d here, for you alone", h.Port); err != nil ||
		!bytes.Contains(log, []byte(want)) {
		return fmt.Errorf("the job's log is without %q: %s %w", want, log, err)
	}
	return h.until(ctx, "Slurm has no job any more", func() error {
		out, err := slurm.Slurm(ctx, "root", "squeue", "--noheader")
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	})
}
