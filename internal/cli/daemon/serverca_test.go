package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// A fleet whose CA ends within a year is warned, before the server starts and while it runs, and replaces it.
func TestServerCA(t *testing.T) {
	dir := t.TempDir()
	config, db := filepath.Join(dir, "server.toml"), filepath.Join(dir, "farm.db")
	if err := os.WriteFile(config, []byte(
		"store = \""+db+"\"\nlisten = \"127.0.0.1:0\"\nurl = \"https://localhost:7480\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := agedCA(t, db, filepath.Join(dir, "ca.key"), 9*365*24*time.Hour/2)
	must(t, "grange server ca rotate", "server", "check", "--config", config)
	must(t, "grange server ca rotate", "server", "check", "--json", "--config", config)
	r := startServer(t, "--config", config)
	must(t, "grange server ca rotate", "server", "status", "--server", r.socket)
	must(t, "FINGERPRINT", "server", "ca", "--server", r.socket)
	if _, err := ask(t, "server", "ca", "retire", "--server", r.socket); app.CodeOf(err) != "no-ca-rotation" {
		t.Errorf("nothing to retire: %v", err)
	}
	must(t, "nobody needs the older one", "server", "ca", "rotate", "--server", r.socket)
	must(t, "is being replaced since", "server", "status", "--server", r.socket)
	if out, err := ask(t, "server", "check", "--config", config); err != nil || strings.Contains(out, "warning") {
		t.Errorf("it is replaced: %v\n%s", err, out)
	}
	out, err := ask(t, "server", "ca", "show", "--json", "--server", r.socket)
	var ca fleet.CA
	if err != nil || json.Unmarshal([]byte(out), &ca) != nil || len(ca.Authorities) != 2 ||
		ca.Authorities[1].Fingerprint != old || ca.RetiresAt == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err = ask(t, "server", "ca", "show", "--pem", "--server", r.socket); err != nil ||
		out != ca.Authorities[0].Certificate+ca.Authorities[1].Certificate {
		t.Errorf("as PEM: %v\n%s", err, out)
	}
	must(t, ca.Authorities[0].Fingerprint[:16], "server", "ca", "retire", "--now", "--server", r.socket)
	if out, err := ask(t, "server", "ca", "--server", r.socket); err != nil || strings.Contains(out, old[:16]) {
		t.Errorf("the retired one: %v\n%s", err, out)
	}
}

// agedCA makes a database whose authority was made a while ago, and returns its fingerprint.
func agedCA(t *testing.T, db, keyFile string, age time.Duration) string {
	t.Helper()
	st, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	seal, err := pki.MakeSeal(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(time.Now().Add(-age))
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.CAs{Present: ca}.Marshal(seal)
	if err == nil {
		_, err = st.Update(t.Context(),
			func(tx *store.Tx) error { return tx.PutSetting(hostlink.AuthoritySetting, text) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return ca.Fingerprint()
}
