package seed

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"

	"github.com/grange-project/grange/internal/farm"
)

func testSeed(t *testing.T) Seed {
	t.Helper()
	guest := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guest, bytes.Repeat([]byte("guest"), 500_000), 0o755); err != nil {
		t.Fatal(err)
	}
	return Seed{ID: "0b6e8a4c-6a55-4f0e-8f7d-0f5ad4b0a9b1", Hostname: "grange-0b6e8a4c", Guest: guest}
}

func readISO(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	iso, err := iso9660.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	if label, err := iso.Label(); err != nil || strings.TrimRight(label, " \x00") != Label {
		t.Errorf("label %q, %v", label, err)
	}
	dir, err := iso.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := dir.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, c := range children {
		if files[c.Name()], err = io.ReadAll(c.Reader()); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestSeed(t *testing.T) {
	s := testSeed(t)
	nasty := "a: b\n#cloud-config\n\x00\xff\"'{}[]\u2028"
	s.Files = []File{{"/etc/grange/it's \"here\": {}[] # ü", 0o640, []byte(nasty)}, {"/usr/local/bin/x", 0o755, nil}}
	file := filepath.Join(t.TempDir(), "seed.iso")
	if err := s.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	files := readISO(t, file)
	if want, _ := os.ReadFile(s.Guest); !bytes.Equal(files["grange-guest"], want) {
		t.Error("grange-guest differs")
	}
	var meta map[string]any
	if err := json.Unmarshal(files["meta-data"], &meta); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"instance-id": s.ID, "local-hostname": s.Hostname}, meta); diff != "" {
		t.Error(diff)
	}
	text, ok := strings.CutPrefix(string(files["user-data"]), "#cloud-config\n")
	if !ok {
		t.Fatalf("user-data begins with %.40q", files["user-data"])
	}
	var c cloudConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	want := cloudConfig{[][]string{{"/bin/sh", "-c", start}}, []writeFile{
		{s.Files[0].Path, "0640", "b64", base64.StdEncoding.EncodeToString([]byte(nasty))},
		{"/usr/local/bin/x", "0755", "b64", ""}}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if err := s.WriteFile(file); err == nil {
		t.Error("wrote over a seed that a VM may be reading")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestSeedRefuses(t *testing.T) {
	for name, spoil := range map[string]func(s *Seed){
		"no name":        func(s *Seed) { s.Hostname = "" },
		"YAML in name":   func(s *Seed) { s.Hostname = "a\nruncmd: [x]" },
		"long name":      func(s *Seed) { s.Hostname = strings.Repeat("a", 64) },
		"no id":          func(s *Seed) { s.ID = "" },
		"relative path":  func(s *Seed) { s.Files = []File{{Path: "etc/x"}} },
		"dots in path":   func(s *Seed) { s.Files = []File{{Path: "/etc/../x"}} },
		"DEL in path":    func(s *Seed) { s.Files = []File{{Path: "/etc/\x7f"}} },
		"newline":        func(s *Seed) { s.Files = []File{{Path: "/etc/\n"}} },
		"not UTF-8":      func(s *Seed) { s.Files = []File{{Path: "/etc/\xff"}} },
		"large files":    func(s *Seed) { s.Files = []File{{Path: "/x", Content: make([]byte, 5<<20)}} },
		"dots in name":   func(s *Seed) { s.Hostname = "a..b" },
		"newline in key": func(s *Seed) { s.Keys = []string{"ssh-rsa A\nssh-rsa B"} },
		"no key":         func(s *Seed) { s.Keys = []string{""} },
		"large keys":     func(s *Seed) { s.Keys = []string{strings.Repeat("a", 300<<10)} },
		"large data":     func(s *Seed) { s.UserData = make([]byte, 2<<20) },
		"files and data": func(s *Seed) { s.UserData, s.Files = []byte("#!"), []File{{Path: "/x"}} },
		"no MAC":         func(s *Seed) { s.Network = &Network{Address: netip.MustParsePrefix("10.1.0.7/16")} },
		"no address":     func(s *Seed) { s.Network = &Network{MAC: "52:54:0a:01:00:07"} },
		"far gateway": func(s *Seed) {
			s.Network = &Network{MAC: "52:54:0a:01:00:07", Address: netip.MustParsePrefix("10.1.0.7/16"),
				Gateway: netip.MustParseAddr("10.2.0.1")}
		},
		"no guest": func(s *Seed) { s.Guest = "/nonexistent" },
	} {
		t.Run(name, func(t *testing.T) {
			s := testSeed(t)
			spoil(&s)
			file := filepath.Join(t.TempDir(), "seed.iso")
			var e *farm.Error
			if err := s.WriteFile(file); !errors.As(err, &e) || e.Code != CodeBadSeed || e.Hint == "" {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("half a seed is left")
			}
		})
	}
}

var update = flag.Bool("update", false, "write the golden files")

// TestDocuments compares all that cloud-init reads with golden files.
func TestDocuments(t *testing.T) {
	network := Network{MAC: "52:54:0A:01:00:07", Address: netip.MustParsePrefix("10.1.0.7/16"),
		Gateway: netip.MustParseAddr("10.1.0.1"),
		DNS:     []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("2001:db8::53")},
		Domain:  "example.org"}
	for name, s := range map[string]Seed{
		"plain":   {},
		"keys":    {Keys: []string{"ssh-ed25519 AAAA ann@\"home\"", "ssh-rsa BBBB bob"}},
		"network": {Network: &network},
		"alone":   {Network: &Network{MAC: network.MAC, Address: network.Address}},
		"user": {Keys: []string{"ssh-ed25519 AAAA ann"}, Network: &network,
			UserData: []byte("Content-Type: multipart/mixed; boundary=\"b\"\r\n\x00\xff\n")},
	} {
		s.ID, s.Hostname = "0b6e8a4c-6a55-4f0e-8f7d-0f5ad4b0a9b1-2", "web.example.org"
		documents, err := s.documents()
		if err != nil {
			t.Fatal(name, err)
		}
		script, err := json.Marshal(start)
		if err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		for _, d := range documents {
			if d.name == "user-data" && s.UserData != nil && !bytes.Equal(d.content, s.UserData) {
				t.Errorf("%s: the user's data was changed: %q", name, d.content)
			}
			text := bytes.ReplaceAll(bytes.ToValidUTF8(d.content, []byte("?")), []byte(start), []byte("(start.sh)\n"))
			fmt.Fprintf(&all, "--- %s\n%s", d.name, bytes.ReplaceAll(text, script, []byte("(start.sh)")))
		}
		golden := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), all.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestStartScriptIsShell(t *testing.T) {
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		if out, err := exec.Command(shell, "-n", "-c", start).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
