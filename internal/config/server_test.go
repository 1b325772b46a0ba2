package config

import (
	"os"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestServer(t *testing.T) {
	s, err := ParseServer([]byte(`
store = "postgres://grange@/farm"
listen = "192.0.2.1:7480"
servers = ["https://a:7480", "https://b:7480"]
silent_after = "2m"
image_source_rate = "10M"
[brokers.west]
system = "slurm"
environment = { SLURM_CONF = "/etc/slurm-west/slurm.conf" }
[brokers.grid]
system = "gridengine"
parallel = "smp"
projects = true
hold = ["-q", "metal.q"]
`), "t")
	if err != nil {
		t.Fatal(err)
	}
	if g := s.Brokers["grid"]; g.Parallel != "smp" || !g.Projects || len(g.Hold) != 2 {
		t.Errorf("%+v", g)
	}
	if s.SourceRate != 10*farm.MiB {
		t.Errorf("source rate %v", s.SourceRate)
	}
	if s.Brokers["west"].Environment["SLURM_CONF"] == "" || s.SilentAfter.Minutes() != 2 || s.SocketMode != 0o666 {
		t.Errorf("%+v", s)
	}
}

func TestServerRefused(t *testing.T) {
	for text, want := range map[string]string{
		`stroe = "x"`:                                          "unknown key",
		`store = ""`:                                           "store",
		`silent_after = "1s"`:                                  "silent_after",
		`silent_after = "soon"`:                                "silent_after",
		`listen = "7480"`:                                      "listen",
		"listen = \"\"\nsocket = \"\"":                         "nobody",
		`certificate = "/a"`:                                   "without the other",
		"certificate = \"/a\"\nkey = \"/b\"":                   "ca",
		`host_field = "san"`:                                   "host_field",
		`url = "http://a"`:                                     "https",
		`servers = ["https://a/b"]`:                            "https",
		`people_ca = "ca.pem"`:                                 "absolute",
		`people_crl = ["/a"]`:                                  "people_ca is not set",
		"people_ca = \"/a\"\n[people.people]\nca = \"/b\"":     "both",
		"[people.x]\nca = \"a\"":                               "absolute",
		"[people.x]\nca = \"/a\"\ncrl = [\"b\"]":               "absolute",
		"[people.x]\nca = \"/a\"\nsubjects = [\"CERN\"]":       "subjects",
		"[people.\"a:b\"]\nca = \"/a\"":                        "authority",
		`socket_mode = 0o7777`:                                 "mode",
		"[brokers.x]\nsystem = \"cron\"":                       "expected one of",
		"[brokers.x]\nsystem = \"exec\"":                       "program",
		"[brokers.grange]\nsystem = \"slurm\"":                 "grange itself",
		"[brokers.\"a b\"]\nsystem = \"slurm\"":                "no broker can be called",
		"[brokers.x]\nsystem = \"slurm\"\nparallel = \"smp\"":  "Grid Engine's",
		"[brokers.x]\nsystem = \"lsf\"\nprojects = true":       "Grid Engine's",
		"[brokers.x]\nsystem = \"htcondor\"\nhold = [\"x\"]":   "hold",
		"[brokers.x]\nsystem = \"pbs\"\nhold = [\"a\", \"b\"]": "one queue",
		"[brokers.x]\nsystem = \"slurm\"\nprogram = \"/bin\"":  "exec",
	} {
		if _, err := ParseServer([]byte(text), "t"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, which does not say %q", text, err, want)
		}
	}
}

func TestServerReached(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ listen, url, want string }{
		{":7480", "", "https://" + machine + ":7480"}, {"0.0.0.0:1", "", "https://" + machine + ":1"},
		{"[::]:1", "", "https://" + machine + ":1"},
		{"192.0.2.1:7480", "", "https://192.0.2.1:7480"}, {"[2001:db8::1]:2", "", "https://[2001:db8::1]:2"},
		{":1", "https://x:9", "https://x:9"}, {"", "", ""},
	} {
		if got, err := (Server{Listen: c.listen, URL: c.url}).Reached(); err != nil || got.URL != c.want {
			t.Errorf("listen %q, url %q: %q, %v", c.listen, c.url, got.URL, err)
		}
	}
	if _, err := (Server{Listen: ":0"}).Reached(); err == nil {
		t.Error("a port that the kernel chooses was taken")
	}
}
