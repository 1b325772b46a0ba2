package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"
)

// drawAll draws every page in every look.
func drawAll(b *browser, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ctx, end, err := b.tab()
	if err != nil {
		return err
	}
	defer end()
	var all []error
	for _, l := range looks {
		for _, p := range pagesOf {
			var png []byte
			err := chromedp.Do(ctx, l.step(), b.visit(p.path), chromedp.Sleep(700*time.Millisecond))
			if err == nil {
				png, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, p.name+"-"+l.name+".png"), png, 0o644)
			}
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
