package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning"
)

// browser is where Debian's package has it; scripts/install-packages test installs it.
const browser = "/usr/bin/chromium"

// recorded is the report on the host of CERN's documents.
func recorded(t *testing.T) tuning.Report {
	t.Helper()
	tree, err := hosttree.Open("../testdata/hosts/cern-2015-before.txtar")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	h, err := hostfacts.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tuning.Audit(h, tuning.Choose(h, tuning.Compute), tuning.Compute, tuning.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// measured is what the probe finds in the page.
type measured struct {
	Findings, Rules, Picture [2]float64 // width and height in pixels
	Threads                  int        // of the picture
	Wide                     bool       // the page is wider than its window
	Violations               []string   // of the page's own content security policy
	Script                   string     // what a script of a VM's name would have left
}

// probe runs in a frame around the page, so that the page itself stays free of scripts.
const probe = `<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><iframe id="page" src="page.html" style="border:0;width:1200px;height:900px"></iframe>
<script>
document.getElementById("page").onload = function () {
  const d = this.contentDocument, out = {};
  const size = e => { const b = e ? e.getBoundingClientRect() : {width: 0, height: 0}; return [b.width, b.height]; };
  out.Findings = size(d.getElementById("findings"));
  out.Rules = size(d.querySelector(".rule"));
  out.Picture = size(d.querySelector("#host svg"));
  out.Threads = d.querySelectorAll("#host svg .cpu").length;
  out.Wide = d.documentElement.scrollWidth > d.documentElement.clientWidth;
  out.Violations = [...d.querySelectorAll("script, [onload], [onclick], link[rel=stylesheet]")].map(e => e.outerHTML);
  out.Script = String(this.contentWindow.hacked || "");
  const pre = document.createElement("pre");
  pre.id = "measured";
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
};
</script>`

var (
	result  = regexp.MustCompile(`(?s)<pre id="measured">(.*?)</pre>`)
	console = regexp.MustCompile(`(?m)^.*CONSOLE.*$`)
)

// chromium runs the browser without a window, and gives its output and what its console said.
func chromium(t *testing.T, args ...string) (stdout string, said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	home := t.TempDir()
	always := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--allow-file-access-from-files",
		"--enable-logging=stderr", "--user-data-dir=" + home}
	cmd := exec.CommandContext(ctx, browser, append(always, args...)...)
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin", "LANG=C.UTF-8"}
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", browser, err, errs.String())
	}
	return out.String(), console.FindAllString(errs.String(), -1)
}

func TestPageInBrowser(t *testing.T) {
	if _, err := os.Stat(browser); err != nil {
		t.Skipf("%v: `scripts/install-packages test` installs it", err)
	}
	for name, r := range map[string]tuning.Report{"recorded": recorded(t), "hostile": sample()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "page.html"), []byte(rendered(t, "html", r)))
			write(t, filepath.Join(dir, "probe.html"), []byte(probe))
			dom, said := chromium(t, "--virtual-time-budget=5000", "--dump-dom",
				"file://"+filepath.Join(dir, "probe.html"))
			if len(said) > 0 {
				t.Errorf("the console says:\n%s", strings.Join(said, "\n"))
			}
			found := result.FindStringSubmatch(dom)
			if found == nil {
				t.Fatalf("the page was not measured:\n%.2000s", dom)
			}
			var m measured
			if err := json.Unmarshal([]byte(html.UnescapeString(found[1])), &m); err != nil {
				t.Fatal(err)
			}
			for what, size := range map[string][2]float64{"findings": m.Findings, "rule": m.Rules,
				"picture": m.Picture} {
				if size[0] < 100 || size[1] < 50 {
					t.Errorf("the %s are %v pixels", what, size)
				}
			}
			if want := r.Host.Topology.Online.Len(); m.Threads != want {
				t.Errorf("the picture shows %d threads of %d", m.Threads, want)
			}
			if m.Wide || len(m.Violations) > 0 || m.Script != "" {
				t.Errorf("wider than the window: %v, active content: %q, ran: %q", m.Wide, m.Violations, m.Script)
			}
		})
	}
}

// The page as a person sees it. GRANGE_SCREENSHOT=FILE keeps the picture, GRANGE_SCREENSHOT_DARK=1 makes it dark.
func TestScreenshot(t *testing.T) {
	if _, err := os.Stat(browser); err != nil {
		t.Skipf("%v: `scripts/install-packages test` installs it", err)
	}
	dir := t.TempDir()
	shot := os.Getenv("GRANGE_SCREENSHOT")
	if shot == "" {
		shot = filepath.Join(dir, "shot.png")
	}
	page := filepath.Join(dir, "page.html")
	write(t, page, []byte(rendered(t, "html", recorded(t))))
	args := []string{"--window-size=1200,1500", "--screenshot=" + shot, "file://" + page}
	if os.Getenv("GRANGE_SCREENSHOT_DARK") != "" {
		args = append([]string{"--blink-settings=preferredColorScheme=0"}, args...)
	}
	if _, said := chromium(t, args...); len(said) > 0 {
		t.Errorf("the console says:\n%s", strings.Join(said, "\n"))
	}
	data, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	colors := map[string]bool{}
	for y := 0; y < img.Bounds().Dy(); y += 5 {
		for x := 0; x < img.Bounds().Dx(); x += 5 {
			colors[fmt.Sprint(img.At(x, y))] = true
		}
	}
	if size := img.Bounds().Size(); size.X < 1000 || size.Y < 1000 || len(colors) < 20 {
		t.Errorf("the screenshot is %v with %d colours: there is no page on it", size, len(colors))
	}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
