// STREAM-like memory bandwidth: copy, copy with streaming stores, triad (plain / streaming), read, write (plain /
// streaming). gcc -O3 -march=native -fopenmp membench.c -o membench && ./membench THREADS MB REPS
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static int cmp(const void* a, const void* b) {
  double x = *(double*)a, y = *(double*)b;
  return (x > y) - (x < y);
}
static volatile float sink;
static void kern(int k, float* a, const float* b, const float* c, long n) {
  __m512 s = _mm512_set1_ps(3.0f);
  switch (k) {
    case 0:
      for (long i = 0; i < n; i += 16) _mm512_storeu_ps(a + i, _mm512_loadu_ps(b + i));
      break;
    case 1:
      for (long i = 0; i < n; i += 16) _mm512_stream_ps(a + i, _mm512_loadu_ps(b + i));
      break;
    case 2:
      for (long i = 0; i < n; i += 16)
        _mm512_storeu_ps(a + i, _mm512_fmadd_ps(s, _mm512_loadu_ps(c + i), _mm512_loadu_ps(b + i)));
      break;
    case 3:
      for (long i = 0; i < n; i += 16)
        _mm512_stream_ps(a + i, _mm512_fmadd_ps(s, _mm512_loadu_ps(c + i), _mm512_loadu_ps(b + i)));
      break;
    case 4: {
      __m512 t[8];
      for (int j = 0; j < 8; j++) t[j] = _mm512_setzero_ps();
      for (long i = 0; i + 128 <= n; i += 128)
        for (int j = 0; j < 8; j++) t[j] = _mm512_add_ps(t[j], _mm512_loadu_ps(b + i + 16 * j));
      float x = 0;
      for (int j = 0; j < 8; j++) x += _mm512_reduce_add_ps(t[j]);
      sink = x;
    } break;
    case 5:
      for (long i = 0; i < n; i += 16) _mm512_storeu_ps(a + i, s);
      break;
    case 6:
      for (long i = 0; i < n; i += 16) _mm512_stream_ps(a + i, s);
      break;
  }
  _mm_sfence();
}
void membench(int threads, long n, int reps, double* out) {
  n = n / (128 * threads) * (128 * threads);
  float* p[3];
  for (int i = 0; i < 3; i++) {
    p[i] = mmap(0, n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p[i], n * 4, MADV_HUGEPAGE);
    memset(p[i], 0, n * 4);
  }
  static const double w[7] = {8, 8, 12, 12, 4, 4, 4};
  double* g = malloc(sizeof(double) * reps);
  for (int k = 0; k < 7; k++) {
    for (int r = -1; r < reps; r++) {
      double t = omp_get_wtime();
#pragma omp parallel num_threads(threads)
      {
        long m = n / threads, o = m * omp_get_thread_num();
        kern(k, p[0] + o, p[1] + o, p[2] + o, m);
      }
      t = omp_get_wtime() - t;
      if (r >= 0) g[r] = w[k] * n / t / 1e9;
    }
    qsort(g, reps, sizeof(double), cmp);
    out[2 * k] = g[reps - 1];
    out[2 * k + 1] = g[reps / 2];
  }
  free(g);
  for (int i = 0; i < 3; i++) munmap(p[i], n * 4);
}
#ifndef AS_LIB
int main(int c, char** v) {
  int th = c > 1 ? atoi(v[1]) : 1;
  long mb = c > 2 ? atol(v[2]) : 512;
  int reps = c > 3 ? atoi(v[3]) : 9;
  double o[14];
  membench(th, mb * 1048576 / 4, reps, o);
  const char* nm[] = {"copy", "copy_nt", "triad", "triad_nt", "read", "write", "write_nt"};
  printf("{\"bench\":\"membench\",\"threads\":%d,\"mb\":%ld", th, mb);
  for (int k = 0; k < 7; k++) printf(",\"%s_gbs\":{\"best\":%.2f,\"median\":%.2f}", nm[k], o[2 * k], o[2 * k + 1]);
  puts("}");
}
#endif
