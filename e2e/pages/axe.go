package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// axePackage is what looks for what people with a screen reader, a keyboard or weak eyes cannot use.
const axePackage = "axe-core@4.14.1"

// axeSource is axe's program: a file, or the one of the package.
func axeSource(ctx context.Context, dir, file string) (string, error) {
	if file == "" {
		fetch := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
			"--prefix", dir, axePackage)
		if out, err := fetch.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm: %w: %s", err, out)
		}
		file = filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

// violations are what axe finds in the page that is loaded, a line each.
func (b *browser) violations(ctx context.Context) (found []string, err error) {
	out, err := chromedp.Run(ctx, chromedp.Evaluate[string](b.axe+`;
axe.run().then(r => JSON.stringify(r.violations.map(v => v.id + " (" + v.impact + "): " + v.nodes.length + " × " +
	v.nodes[0].html.slice(0, 160) + " " + v.nodes[0].failureSummary.replace(/\s+/g, " "))))`,
		chromedp.EvalAwaitPromise))
	if err != nil {
		return nil, fmt.Errorf("axe: %w", err)
	}
	return found, json.Unmarshal([]byte(out), &found)
}
