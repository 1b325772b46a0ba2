package main

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// step is one thing that somebody does in a page, or waits for.
type step = chromedp.Action[chromedp.Void]

// call sends the browser a command of its protocol.
func call[P, R any](command cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// look is how a page is looked at.
type look struct {
	name          string
	width, height int64
	scale         float64
	phone, dark   bool
}

var looks = []look{{"desk", 1360, 900, 1, false, false}, {"desk-dark", 1360, 900, 1, false, true},
	{"phone", 390, 844, 2, true, false}, {"phone-dark", 390, 844, 2, true, true}}

func (l look) step() step {
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	return chromedp.Steps(
		call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: l.width,
			Height: l.height, DeviceScaleFactor: l.scale, Mobile: l.phone}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}))
}

// visit loads a page, and waits until it is there.
func (b *browser) visit(path string) step {
	return chromedp.Steps(chromedp.Navigate(b.server.URL+path), visible("main"))
}

func key(keys string) step { return chromedp.KeyEvent(keys) }

func visible(selector string) step { return on(selector, chromedp.WaitVisible(chromedp.CSS(selector))) }
func focus(selector string) step   { return on(selector, chromedp.Focus(chromedp.CSS(selector))) }

// write types into a field; set replaces what is there.
func write(selector, text string) step {
	return on(selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

func set(selector, value string) step {
	return on(selector, chromedp.SetValue(chromedp.CSS(selector), value))
}

// tick clicks on what leads to no other page.
func tick(selector string) step { return on(selector, chromedp.Click(chromedp.CSS(selector))) }

// on says which element a step waited for in vain.
func on(selector string, s step) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		ctx, cancel := context.WithTimeout(ctx, stepTime)
		defer cancel()
		if _, err := s(ctx, t); err != nil {
			return fmt.Errorf("at %s: %w", selector, err)
		}
		return nil
	})
}

// js runs an expression in the page.
func js(expression string) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[any](expression+"; 0")(ctx, t)
		return err
	})
}

// value is that of an expression in the page.
func value[T any](ctx context.Context, expression string) (T, error) {
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// until waits until an expression holds, also in a page that is not there yet.
func until(what, expression string) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for late := time.Now().Add(stepTime); ; time.Sleep(100 * time.Millisecond) {
			holds, err := chromedp.Evaluate[bool](expression)(ctx, t)
			if err == nil && holds {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
			}
			if time.Now().After(late) {
				says, _ := chromedp.Evaluate[string](`document.querySelector("main").innerText.slice(0, 600)`)(ctx, t)
				return fmt.Errorf("waiting for %s: the page says %q", what, says)
			}
		}
	})
}

// text waits until an element has a text; without, until none has.
func text(selector, want string) step {
	return until(fmt.Sprintf("%q in %s", want, selector),
		fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))`, selector, want))
}

func without(selector, text string) step {
	return until(fmt.Sprintf("no %q in %s", text, selector),
		fmt.Sprintf(`![...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))`, selector, text))
}

// press clicks on a button or a link that leads to another page, and waits until that is there.
func press(selector string) step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		ctx, cancel := context.WithTimeout(ctx, stepTime)
		defer cancel()
		if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
			return fmt.Errorf("pressing %s: %w", selector, err)
		}
		return nil
	})
}
