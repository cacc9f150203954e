// Gets a URL from 16 connections at once for SECONDS, a new one for each request; prints requests/s and their number.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		fail(err)
	}
	// As most clients do, it says which protocol it speaks within TLS. Nothing is resumed.
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
	}}
	var count atomic.Int64
	var workers sync.WaitGroup
	started := time.Now()
	for worker := 0; worker < 16; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for time.Since(started).Seconds() < seconds {
				answer, err := client.Get(os.Args[2])
				if err != nil {
					fail(err)
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != 200 || len(body) != 1024 {
					fail(answer.Status, len(body), err)
				}
				count.Add(1)
			}
		}()
	}
	workers.Wait()
	fmt.Println(float64(count.Load())/time.Since(started).Seconds(), count.Load())
}

func fail(why ...any) {
	fmt.Fprintln(os.Stderr, why...)
	os.Exit(1)
}
