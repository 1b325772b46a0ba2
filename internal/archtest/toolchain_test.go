package archtest

import (
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pinned returns the version and the sum of scripts/toolchain.sum.
func pinned(t *testing.T) (tag, sum string) {
	t.Helper()
	module := ""
	if _, err := fmt.Sscanln(read(t, "scripts/toolchain.sum"), &module, &tag, &sum); err != nil {
		t.Fatal(err)
	}
	return tag, sum
}

func TestToolchainIsNewEnough(t *testing.T) {
	needed := regexp.MustCompile(`(?m)^go (.*)$`).FindStringSubmatch(read(t, "go.mod"))[1]
	tag, _ := pinned(t)
	_, offered, _ := strings.Cut(tag, "-")
	offered, _, _ = strings.Cut(offered, ".linux-")
	if !version.IsValid(offered) || version.Compare(offered, "go"+needed) < 0 {
		t.Errorf("scripts/toolchain.sum offers %s, go.mod needs %s", offered, needed)
	}
}

// oldGo is a go of version $HAVE whose module proxy answers with the sum $SUM and a toolchain that prints its
// arguments.
const oldGo = `#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo "go$HAVE" ;;
"env GOROOT") dirname "$(dirname "$0")" ;;
"mod download")
	echo "$4" >>"$ASKED"
	tree=$GOMODCACHE/$4
	mkdir -p "$tree/bin" "$tree/pkg/tool/linux_amd64" "$tree/src"
	echo compile >"$tree/pkg/tool/linux_amd64/compile"
	echo module std >"$tree/src/_go.mod"
	sed -e 's/go$HAVE/go9.9.9/' "$0" >"$tree/bin/go"
	printf '{\n\t"Path": "golang.org/toolchain",\n\t"Sum": "%s"\n}\n' "$SUM" ;;
*) echo "$(basename "$(dirname "$(dirname "$0")")") runs: $*" ;;
esac
`

// goScript is a copy of scripts/go in a tree of its own, with an old go in its PATH.
type goScript struct {
	dir, asked string
	env        []string
}

func newGoScript(t *testing.T, have, sum string) goScript {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"scripts/go", "scripts/toolchain.sum", "go.mod"} {
		write(name, read(t, name), 0o755)
	}
	write("old/bin/go", oldGo, 0o755)
	asked := filepath.Join(dir, "asked")
	env := append(os.Environ(), "PATH="+dir+"/old/bin:/usr/bin:/bin", "HAVE="+have, "SUM="+sum, "ASKED="+asked)
	return goScript{dir: dir, asked: asked, env: env}
}

func (g goScript) run(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(g.dir, "scripts/go"), args...)
	cmd.Env = g.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g goScript) downloads() int {
	text, _ := os.ReadFile(g.asked)
	return strings.Count(string(text), "golang.org/toolchain@")
}

func TestOldGoDownloadsANewerOne(t *testing.T) {
	tag, sum := pinned(t)
	g := newGoScript(t, "1.19.8", sum)
	for i := range 2 {
		out, err := g.run("build", "./cmd/x")
		if err != nil || !strings.HasSuffix(out, tag+" runs: build ./cmd/x\n") {
			t.Fatalf("run %d: %v, %s", i, err, out)
		}
		if once := strings.Contains(out, "1.19.8: downloading"); once != (i == 0) {
			t.Errorf("run %d prints %s", i, out)
		}
	}
	if n := g.downloads(); n != 1 {
		t.Errorf("%d downloads, not one", n)
	}
	tree := filepath.Join(g.dir, "bin/toolchain", tag)
	if info, err := os.Stat(filepath.Join(tree, "pkg/tool/linux_amd64/compile")); err != nil ||
		info.Mode()&0o111 != 0o111 {
		t.Errorf("a tool cannot be executed: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(tree, "src/go.mod")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(g.dir, "bin/toolchain/.fetch*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestToolchainWithAnotherSumIsRefused(t *testing.T) {
	tag, _ := pinned(t)
	g := newGoScript(t, "1.19.8", "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	out, err := g.run("version")
	if err == nil || !strings.Contains(out, "is not what scripts/toolchain.sum records") ||
		strings.Contains(out, "runs:") {
		t.Errorf("%v, %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "bin/toolchain", tag)); err == nil {
		t.Error("the toolchain was kept")
	}
}

func TestNewGoIsUsedAsItIs(t *testing.T) {
	g := newGoScript(t, "1.99.0", "")
	if out, err := g.run("version"); err != nil || out != "old runs: version\n" || g.downloads() != 0 {
		t.Errorf("%v, %d downloads, %s", err, g.downloads(), out)
	}
}
